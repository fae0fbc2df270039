"""Mixtures of several prepared folders: how often each is read, and the rows of all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from maskwright.data.config import MixtureConfig, parse_amounts
from maskwright.data.counter_rng import Purpose, derive_keys, to_unit
from maskwright.data.permutation import permute
from maskwright.data.rows import WINDOW_SEGMENTS, Ints, Rows, SegmentTable, WindowPlanner
from maskwright.errors import ConfigError, did_you_mean

MAX_SOURCES = 256  # far below WINDOW_SEGMENTS, since a window mixes all sources


@dataclass(frozen=True)
class Mixture:
    """The sources of a concatenated corpus.

    Attributes:
        num_documents: the number of documents of each source, in the order of the corpus.
        passes: passes over each source in an epoch of the mixture: above 0, possibly fractional.
    """

    num_documents: tuple[int, ...]
    passes: tuple[float, ...]

    def split(self, document_lengths: Ints, max_tokens: int) -> list[SegmentTable]:
        """Return the segments of each source, with positions relative to that source."""
        parts = np.split(document_lengths, np.cumsum(self.num_documents)[:-1])
        return [SegmentTable(part, max_tokens) for part in parts]


def count_passes(config: MixtureConfig, num_tokens: Mapping[str, int]) -> dict[str, float]:
    """Return the passes over each source in an epoch of the mixture.

    An epoch has as many tokens as all sources together, unless `config` sets passes.

    Args:
        num_tokens: the number of tokens of each source by name, at least 1.

    Raises:
        ConfigError: a name is not that of a source, or a source has no weight.
    """
    if config.epochs:
        asked = parse_amounts("epochs", config.epochs)
        _check_names("epochs", asked, num_tokens)
        return {name: asked.get(name, 1.0) for name in num_tokens}
    if config.weights:
        shares = parse_amounts("weights", config.weights)
        _check_names("weights", shares, num_tokens)
        missing = [name for name in num_tokens if name not in shares]
        if missing:
            rule = f"has no weight for {missing[0]}"
            raise ConfigError("mixture.weights", ",".join(config.weights), rule, "Add its share.")
    elif config.temperature is not None:
        largest = max(num_tokens.values())  # powers of ratios cannot overflow
        shares = {n: (size / largest) ** (1 / config.temperature) for n, size in num_tokens.items()}
    else:
        return dict.fromkeys(num_tokens, 1.0)
    unit = sum(num_tokens.values()) / sum(shares.values())
    return {name: shares[name] * unit / size for name, size in num_tokens.items()}


def _check_names(field: str, given: Mapping[str, float], known: Mapping[str, int]) -> None:
    for name in given:
        if name not in known:
            rule = f"is not one of the sources {', '.join(known)}"
            raise ConfigError(f"mixture.{field}", name, rule, did_you_mean(name, known))


class MixturePlanner(WindowPlanner):
    """A planner of rows of several sources; spans are positions in their concatenation.

    An epoch of the mixture has an integer number of segments of each source and an integer number
    of windows. A source with K segments in an epoch of W windows contributes its segments
    ``K * w // W`` to ``K * (w + 1) // W`` to window w, counted over all epochs. The segments of a
    source are numbered through its own passes, and each pass has the same order as in training on
    the source alone. Any window can thus be planned without the previous ones, and after any number
    of windows a source deviates from its share by less than one segment.

    Within a window each pass of each source is packed and shuffled separately, so that a row holds
    one source and never the same text twice; then the rows of the sources are interleaved evenly.

    Args:
        tables: the segments of each source, at least one; at most `MAX_SOURCES` sources.
        passes: passes over each source in an epoch. The other arguments are those of
            `WindowPlanner`.
    """

    def __init__(
        self,
        tables: Sequence[SegmentTable],
        passes: Sequence[float],
        row_length: int,
        special_per_segment: int,
        seed: int,
        packed: bool,
    ) -> None:
        super().__init__(row_length, special_per_segment, seed, packed)
        self.tables = tables
        self._first_tokens = np.cumsum([0, *(table.num_tokens for table in tables)])
        self.num_segments = [
            max(1, round(count * len(table))) for count, table in zip(passes, tables, strict=True)
        ]
        # Rounding may add one segment of each source to a window.
        in_window = WINDOW_SEGMENTS - len(tables)
        self.num_windows = -(-sum(self.num_segments) // in_window)

    @property
    def end_number(self) -> int:
        return self.num_windows * WINDOW_SEGMENTS

    def _plan_window(self, epoch: int, window: int) -> Rows:
        total = epoch * self.num_windows + window  # the number of earlier windows, over all epochs
        parts: list[Rows] = []
        sources: list[int] = []
        for source, count in enumerate(self.num_segments):
            first, last = (count * w // self.num_windows for w in (total, total + 1))
            for chosen in self._draw(source, first, last):
                starts, lengths = self.tables[source].locate(chosen)
                parts.append(self._pack(starts + self._first_tokens[source], lengths, epoch))
                sources.append(source)
        spread = self._spread(parts, np.asarray(sources), (self.seed, epoch, window))
        return replace(spread, numbers=window * WINDOW_SEGMENTS + np.arange(len(spread)))

    def _draw(self, source: int, first: int, last: int) -> Iterator[Ints]:
        """Yield the segments ``first:last`` of a source in the order of its passes."""
        size = len(self.tables[source])
        while first < last:
            own_epoch, begin = divmod(first, size)
            end = min(begin + last - first, size)
            yield permute(np.arange(begin, end), size, self.seed, own_epoch)
            first += end - begin

    def _spread(self, parts: Sequence[Rows], sources: Ints, key: tuple[int, ...]) -> Rows:
        """Return all rows, shuffled within their part, with the rows of each source spread evenly.

        With n rows of a source, the j-th is at a random position in the j-th of n equal intervals.

        Args:
            sources: [P] the source of each part, ascending.
        """
        rows, sizes = Rows.concat(parts), [len(part) for part in parts]
        numbers = np.arange(len(rows))
        keys = derive_keys(*key, Purpose.ROW_ORDER, numbers)
        shuffled = np.lexsort((keys, np.repeat(np.arange(len(parts)), sizes)))
        source = np.repeat(sources, sizes)
        counts = np.bincount(source)
        ranks = numbers - (np.cumsum(counts) - counts)[source]
        jitter = to_unit(derive_keys(*key, Purpose.MIXTURE, numbers))
        order = np.argsort((ranks + jitter) / counts[source], kind="stable")
        return rows.take(shuffled[order])
