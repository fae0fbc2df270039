"""The speed and memory of known GPUs, without one at hand.

The speed of a GPU is what our runs reached on one H200 (bf16, compiled, recorded as CUDA graphs;
docs/results.md). For other cards it is scaled by peak or by memory bandwidth, whichever is the
smaller ratio, and counts as computed.
"""

import math
import re
from dataclasses import dataclass

from maskwright.errors import ConfigError, did_you_mean
from maskwright.train.config import TrainConfig

CARDS_A_NODE = 8
# The share of the dense bf16 peak that rows of 512 tokens reach on an H200, by width of the model.
_SHARES = {384: 0.228, 768: 0.295}
# Of that share, what a small forward pass reaches, in tokens; in between by logarithm. An even
# smaller one takes as long, because kernels do not get shorter without end.
_SMALL_PASS, _LARGE_PASS, _SMALL_PASS_SHARE = 16384, 65536, 0.77


@dataclass(frozen=True)
class Card:
    """A GPU of the data sheets, SXM where there are several.

    Attributes:
        peak_flops: dense bf16 FLOP/s.
        memory: bytes.
        bandwidth: of the memory, in bytes/s.
    """

    name: str
    peak_flops: float
    memory: float
    bandwidth: float


CARDS = tuple(
    Card(name, teraflops * 1e12, gigabytes * 1e9, gigabytes_a_second * 1e9)
    for name, teraflops, gigabytes, gigabytes_a_second in (
        ("H200", 989, 141, 4800), ("H100", 989, 80, 3350), ("B200", 2250, 180, 7700),
        ("A100", 312, 80, 2039), ("L40S", 362, 48, 864), ("L40", 181, 48, 864),
        ("L4", 121, 24, 300), ("A10", 125, 24, 600), ("RTX4090", 165, 24, 1008),
        ("RTX3090", 71, 24, 936),
    )
)  # fmt: skip
_MEASURED = CARDS[0]


@dataclass(frozen=True)
class Cards:
    """A number of equal cards, in one machine or in machines of `CARDS_A_NODE` each."""

    card: Card
    count: int = 1

    def __str__(self) -> str:
        return f"{self.count}x{self.card.name}" if self.count > 1 else self.card.name

    @property
    def num_nodes(self) -> int:
        return -(-self.count // CARDS_A_NODE)

    @property
    def peak_flops(self) -> float:
        return self.card.peak_flops * self.count

    def time_step(
        self, width: int, step_tokens: float, flops_per_token: float, micro_tokens: float
    ) -> tuple[float, bool]:
        """Return the seconds of a step, without the time of the network between the cards.

        Args:
            width: of the model.
            step_tokens: tokens of the whole step, which all cards share.
            micro_tokens: tokens in a forward pass of a card, at most.

        Returns:
            The seconds, and True if this card reached this speed at this width in a measurement.
        """
        nearest = min(_SHARES, key=lambda known: abs(known - width))
        card, known = self.card, _MEASURED
        ratio = min(card.peak_flops / known.peak_flops, card.bandwidth / known.bandwidth)
        flops_a_second = _SHARES[nearest] * known.peak_flops * ratio
        part = step_tokens / self.count
        in_pass = min(part, micro_tokens)
        paid = max(in_pass, _SMALL_PASS)
        fewer = max(0.0, math.log(_LARGE_PASS / paid, _LARGE_PASS / _SMALL_PASS))
        reached = 1 - (1 - _SMALL_PASS_SHARE) * fewer
        pass_seconds = paid * flops_per_token / flops_a_second / reached
        is_same = self.count == 1 and card is known and nearest == width
        return part / in_pass * pass_seconds, is_same and in_pass == paid


def parse_cards(text: str, field: str) -> Cards:
    """Parse ``8xH100``, ``H200`` or ``RTX 4090``.

    Raises:
        ConfigError: the card is not in the table (the message names the nearest), or the number is
            not that of one machine or of whole machines.
    """
    found = re.fullmatch(r"(?:(\d{1,5})\s*x\s*)?(.+)", text.strip(), re.IGNORECASE)
    number, name = (found[1], found[2]) if found else (None, text)
    known = {card.name: card for card in CARDS}
    given = re.sub(r"[\s_-]|^nvidia", "", name, flags=re.IGNORECASE).upper()
    card = known.get(given) or known.get(f"RTX{given}")
    if card is None:
        remedy = did_you_mean(given, known) or f"Choose from {', '.join(known)}."
        raise ConfigError(field, text, "is not a known device", remedy)
    count = int(number or 1)
    if not count or (count > CARDS_A_NODE and count % CARDS_A_NODE):
        rule = f"must be 1 to {CARDS_A_NODE} cards or a multiple of {CARDS_A_NODE}"
        raise ConfigError(field, text, rule, f"Write {CARDS_A_NODE}x{card.name}.")
    return Cards(card, count)


def find_card(device_name: str) -> Card | None:
    """Return the card that torch calls so, as in ``NVIDIA H100 80GB HBM3``; None if unknown."""
    name = device_name.replace(" ", "")
    return next((card for card in CARDS if card.name in name), None)


def own_tokens(train: TrainConfig, num_cards: int) -> int:
    """Return the tokens in a forward pass of a card: its part of the largest step, or fewer.

    With ``auto`` it is that part, which memory may limit (`estimate_micro_batch`).
    """
    part, given = -(-train.most_batch_tokens // num_cards), train.micro_batch_tokens
    return min(part, given) if isinstance(given, int) else part
