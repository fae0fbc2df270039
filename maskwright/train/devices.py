"""Known GPUs, and the time and memory of a training step on them, without one at hand.

The speed is what our runs reached on one H200 (bf16, compiled; docs/speed.md). For other cards it
is scaled by peak or by memory bandwidth, whichever is the smaller ratio, and counts as computed.
"""

import re
from dataclasses import dataclass

from maskwright.errors import ConfigError, did_you_mean
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters
from maskwright.train.config import TrainConfig, parse_schedule

CARDS_A_NODE = 8
# The share of the dense bf16 peak that rows of 512 tokens reach on an H200, by width of the model.
_SHARES = {384: 0.221, 768: 0.289}
# The host needs 45 ms to launch a step of 12 layers; the GPU waits if it computes faster.
_LAUNCH_SECONDS_A_LAYER = 0.045 / 12
_FREE_SHARE = 0.1  # of the memory, for the allocator and the libraries
BYTES_PER_PARAMETER = 16  # fp32 weight, gradient and two AdamW moments; Muon keeps one
_BYTES_PER_TOKEN_AND_WIDTH = 190e3 / (12 * 384)  # activations, for each layer


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

    def estimate_step_seconds(
        self, model: EncoderConfig, step_tokens: float, flops_per_token: float, micro_tokens: float
    ) -> tuple[float, bool]:
        """Return the seconds of a step, without the time of the network between the cards.

        Args:
            step_tokens: tokens of the whole step, which all cards share.
            micro_tokens: tokens in a forward pass of a card, at most.

        Returns:
            The seconds, and True if this card reached this speed at this width in a measurement.
        """
        nearest = min(_SHARES, key=lambda width: abs(width - model.hidden_size))
        card, known = self.card, _MEASURED
        ratio = min(card.peak_flops / known.peak_flops, card.bandwidth / known.bandwidth)
        flops_a_second = _SHARES[nearest] * known.peak_flops * ratio
        part = step_tokens / self.count
        computing = part * flops_per_token / flops_a_second
        is_same = self.count == 1 and card is known and nearest == model.hidden_size
        return computing, is_same

    def fit_micro_batch(self, model: EncoderConfig, train: TrainConfig, row_length: int) -> int:
        """Return the most tokens in a forward pass of a card that fit into its memory.

        They are those of `train`, halved as often as necessary; 0 if no row fits.
        """
        tokens = own_tokens(train, self.count)
        while tokens >= row_length and not self.fits(estimate_memory(model, tokens)):
            tokens //= 2
        return tokens if tokens >= row_length else 0

    def fits(self, num_bytes: float) -> bool:
        """Return True if a card has this memory."""
        return num_bytes <= (1 - _FREE_SHARE) * self.card.memory


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
    """Return the tokens in a forward pass of a card: its part of the largest step, or fewer."""
    stages = train.batch_tokens_schedule
    steps = parse_schedule("batch_tokens_schedule", stages, train.batch_tokens)
    part = -(-max(tokens for _, tokens in steps) // num_cards)
    given = train.micro_batch_tokens
    return min(part, given) if isinstance(given, int) else part


def estimate_memory(model: EncoderConfig, micro_batch_tokens: int) -> float:
    """Return the bytes that training takes on a GPU: weights, optimizer and activations.

    Activations are those of bf16 with compiled blocks, scaled by layers times width from 190 kB a
    token at 12 layers of 384.
    """
    activations = _BYTES_PER_TOKEN_AND_WIDTH * model.num_hidden_layers * model.hidden_size
    weights = BYTES_PER_PARAMETER * count_parameters(model).total
    return weights + activations * micro_batch_tokens
