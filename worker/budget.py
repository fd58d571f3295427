"""What a job may still spend: known costs as they are, a call in flight by estimate."""

from dataclasses import replace
from decimal import Decimal

from schema.runs import Exposure
from worker.providers.provider import TokenPrice

# Tokens are not counted by us. Four characters each is what the common tokenizers make of English; other languages
# make more tokens of a text, so that an estimate errs to the side of going on.
CHARACTERS_A_TOKEN = 4
_MILLION = Decimal(1_000_000)


def estimate_usd(price: TokenPrice, input_characters: int, output_characters: int) -> Decimal:
    """What so much text costs, about; US dollars."""
    dollars = input_characters * price.input_usd + output_characters * price.output_usd
    return (dollars / CHARACTERS_A_TOKEN / _MILLION).quantize(Decimal("1e-9"))


class Budget:
    """The exposure of one job, kept up to date by its run."""

    def __init__(self, exposure: Exposure) -> None:
        self.exposure = exposure

    def book(self, cost_usd: Decimal | None, *, may_be_more: bool) -> None:
        """A call has ended, with this much known of its cost."""
        spent = self.exposure.spent_usd + (cost_usd or 0)
        unknown = self.exposure.unknown_calls + (cost_usd is None or may_be_more)
        self.exposure = replace(self.exposure, spent_usd=spent, unknown_calls=unknown)

    def is_passed(self, more_usd: Decimal = Decimal(0)) -> bool:
        """Whether the calls so far, and `more_usd` of one in flight, cost more than the job may."""
        most = self.exposure.max_cost_usd
        return most is not None and self.exposure.spent_usd + more_usd > most
