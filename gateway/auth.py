"""Who is asking: an API key or a token, and what that may see and do."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from starlette.requests import Request

from gateway.cookies import cookie_of
from gateway.gateway import Gateway, gateway_of
from gateway.origins import is_cross_site
from gateway.problems import Problem
from gateway.tokens import Claims, Scope, TokenInvalid
from schema.errors import NoSuchTenant
from schema.jobs import Reach
from schema.tenants import ApiKey, Tenant, find_key

COOKIE = "outlive_token"
# What is longer is neither a key nor a token of ours.
CREDENTIAL_CHARACTERS = 8192


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who was let in. `tenant` is whose jobs he makes, `reach` what he sees; `key` None means a token."""

    tenant: Tenant
    reach: Reach
    scopes: frozenset[Scope]
    expires_at: datetime | None
    key: ApiKey | None = None

    @property
    def user(self) -> str | None:
        """The user whose jobs alone are seen and made, where a token names one."""
        return self.reach.user_id

    def must(self, scope: Scope) -> None:
        """Raise Problem forbidden where the token does not allow this."""
        if scope not in self.scopes:
            raise Problem("forbidden", f"This token does not have the scope {scope.value!r}; get one that has it.")

    def must_be_backend(self) -> None:
        """Raise Problem forbidden where a token asks for what an API key may."""
        if self.key is None:
            raise Problem("forbidden", "This takes an API key; a token is not enough.")


async def authenticate(request: Request, *, query_token_for: UUID | None = None) -> Caller:
    """The caller by `Authorization`, else by `?token=`, else by the cookie.

    A token is taken from the query only where `query_token_for` names the job that is asked for: it lands in logs and
    histories, so there it may only read, and only jobs that it names. Raises Problem unauthorized, forbidden,
    database_unavailable; and DatabaseUnavailable.
    """
    gateway = gateway_of(request)
    gateway.check_started()
    header = request.headers.get("authorization")
    if header is not None:
        return await _by_header(gateway, header)
    in_query = request.query_params.getlist("token")
    if in_query:
        return await _by_query(gateway, request, in_query, query_token_for)
    cookie = cookie_of(request, COOKIE)
    if cookie is None:
        raise Problem("unauthorized", "Send an API key or a token: Authorization: Bearer ...")
    check_same_site(request)
    return await _by_token(gateway, cookie)


def check_same_site(request: Request) -> None:
    """Raise Problem forbidden where a browser sends its cookie on a foreign page's behalf."""
    settings = gateway_of(request).settings
    if is_cross_site(request.headers, settings.origins, settings.public_url):
        raise Problem(
            "forbidden", "A page of another site may not use this cookie; list its origin in OUTLIVE_ORIGINS."
        )


async def _by_header(gateway: Gateway, header: str) -> Caller:
    scheme, _, credential = header.partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not 0 < len(credential) <= CREDENTIAL_CHARACTERS:
        raise Problem("unauthorized", "Send the credential as Authorization: Bearer ...")
    # A JWT has two dots; a key, which is base64url, has none.
    return await (_by_token(gateway, credential) if "." in credential else _by_key(gateway, credential))


async def _by_query(gateway: Gateway, request: Request, tokens: list[str], job_id: UUID | None) -> Caller:
    if job_id is None or request.method not in {"GET", "HEAD"} or len(tokens) > 1:
        raise Problem("unauthorized", "A token in the query is taken for reading one job only; use Authorization.")
    caller = await _by_token(gateway, tokens[0])
    if caller.reach.jobs is None or caller.scopes != {Scope.READ}:
        raise Problem("unauthorized", "A token in the query has to name its jobs and may only have the scope 'read'.")
    return caller


async def _by_key(gateway: Gateway, credential: str) -> Caller:
    key = await find_key(gateway.database, credential)
    if key is None:
        raise Problem("unauthorized", "This API key is not known here, or was revoked.")
    tenant = await gateway.tenants.of_id(key.tenant_id)
    return Caller(tenant, Reach(None if key.is_operator else tenant.id), frozenset(Scope), None, key)


async def _by_token(gateway: Gateway, token: str) -> Caller:
    try:
        claims: Claims = gateway.signer.verify(token[: CREDENTIAL_CHARACTERS + 1])
        tenant = await gateway.tenants.named(claims.tenant)
    except (TokenInvalid, NoSuchTenant):
        raise Problem("unauthorized", "This token is not valid, or has expired. Get a new one.") from None
    return Caller(tenant, Reach(tenant.id, claims.user, claims.jobs), claims.scopes, claims.expires_at)
