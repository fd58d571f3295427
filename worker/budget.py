"""What a job may still spend: known costs as they are, calls in flight by estimate."""

from dataclasses import replace
from decimal import Decimal

from schema.runs import Exposure
from worker.providers.provider import TokenPrice

# Tokens are not counted by us. Four characters each is what the common tokenizers make of English; other languages
# make more tokens of a text, so that an estimate errs to the side of going on.
CHARACTERS_A_TOKEN = 4
_MILLION = Decimal(1_000_000)
_NOTHING = Decimal(0)


class BudgetPassed(Exception):
    """The calls of the job have cost more than it may; its run is being stopped, and makes no other call."""


def estimate_usd(price: TokenPrice, input_characters: int, output_characters: int) -> Decimal:
    """What so much text costs, about; US dollars."""
    dollars = input_characters * price.input_usd + output_characters * price.output_usd
    return (dollars / CHARACTERS_A_TOKEN / _MILLION).quantize(Decimal("1e-9"))


class Budget:
    """The exposure of one job, kept up to date by its run."""

    def __init__(self, exposure: Exposure) -> None:
        self.exposure = exposure
        # By call: a handler may have several on their way at once, and together they may not pass the bound either.
        self._in_flight: dict[int, Decimal] = {}

    def expect(self, call: int, usd: Decimal) -> None:
        """A call in flight has cost about so much by now."""
        self._in_flight[call] = usd

    def expected(self, call: int) -> Decimal | None:
        """What a call in flight has cost, about; None where its price is not known, or nothing has come yet."""
        return self._in_flight.get(call)

    def book(self, call: int, cost_usd: Decimal | None, *, may_be_more: bool) -> None:
        """A call has ended, with this much known of its cost."""
        self._in_flight.pop(call, None)
        spent = self.exposure.spent_usd + (cost_usd or 0)
        unknown = self.exposure.unknown_calls + (cost_usd is None or may_be_more)
        self.exposure = replace(self.exposure, spent_usd=spent, unknown_calls=unknown)

    def hand_over(self) -> None:
        """What a call costs whose cost was not known is from now on another call's, which goes on with it."""
        self.exposure = replace(self.exposure, unknown_calls=max(0, self.exposure.unknown_calls - 1))

    def is_passed(self) -> bool:
        """Whether the calls so far, those in flight too, cost more than the job may."""
        most = self.exposure.max_cost_usd
        return most is not None and self.exposure.spent_usd + sum(self._in_flight.values(), _NOTHING) > most
