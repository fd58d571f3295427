"""Whose turn it is, as one worker remembers it: start-time fair queueing.

A tenant that had a job started may have its next 1 / weight later, in virtual time, than that one; virtual time is
the start tag of the job that was started last. Who was away comes back at virtual time: neither punished nor with
credit. Every worker being fair for itself, all together are, and no row is there that all claims would queue on.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from schema.runs import Turn


class Turns:
    """The start tags of the tenants that are ahead of virtual time; as many as are being served."""

    def __init__(self) -> None:
        self.virtual_now = 0.0
        self._tags: dict[UUID, float] = {}

    @property
    def tags(self) -> Mapping[UUID, float]:
        """Of those ahead."""
        return self._tags

    def took(self, turns: Sequence[Turn]) -> None:
        """Remember whose jobs were started."""
        for turn in turns:
            self._tags[turn.tenant_id] = turn.tag + 1 / turn.weight
            self.virtual_now = max(self.virtual_now, turn.tag)
        self._tags = {tenant: tag for tenant, tag in self._tags.items() if tag > self.virtual_now}
