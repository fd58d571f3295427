"""What one gateway process consists of; routes find it by `gateway_of(request)`."""

from dataclasses import dataclass, field

import anyio
from starlette.requests import HTTPConnection

from gateway.key_watch import KeyWatch
from gateway.kind_book import KindBook
from gateway.readiness import Readiness
from gateway.settings import GatewaySettings
from gateway.tailer import Tailer
from gateway.tenant_book import TenantBook
from gateway.tokens import Signer
from gateway.wheel import Wheel
from schema.database import Database
from schema.errors import DatabaseUnavailable
from schema.hints import HintSender
from schema.listener import Listener


@dataclass(frozen=True, slots=True)
class Gateway:
    """Made once by app.py. `draining` is set when the process has been told to end; streams end themselves on it."""

    settings: GatewaySettings
    database: Database
    tailer: Tailer
    wheel: Wheel
    keys: KeyWatch
    listener: Listener
    hints: HintSender
    signer: Signer
    kinds: KindBook
    tenants: TenantBook
    readiness: Readiness
    draining: anyio.Event = field(default_factory=anyio.Event)

    def link(self, path: str) -> str:
        """A link as answers carry it: under the public URL where there is one, else the path."""
        return self.settings.public_url + path

    def check_started(self) -> None:
        """Raise DatabaseUnavailable until the tables have once been there in a version that fits."""
        if not self.readiness.started:
            raise DatabaseUnavailable(f"the gateway {self.readiness.trouble}; try again later")


def gateway_of(request: HTTPConnection) -> Gateway:
    """The process's gateway."""
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway
