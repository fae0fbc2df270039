"""Counts of selection: documents kept, dropped and repaired, with a few samples of each."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maskwright.corpus.fingerprints import fingerprint_text

KEPT = "kept"
_SAMPLES = 5  # for each fate: kept, or a reason for dropping
_SAMPLE_CHARACTERS = 700


@dataclass
class Tally:
    """Counts over documents; the tallies of two sets of documents can be added.

    Attributes:
        read, kept: numbers of documents.
        characters: characters of the kept documents.
        dropped: documents by reason.
        repaired: documents by kind of repair.
        lengths: documents read, by the bit length of their number of characters.
        languages: documents read by language, if it was identified.
        samples: the beginnings of some documents, each with its hash, by fate (`KEPT` or a reason).
            Those with the smallest hashes are kept, so the choice does not depend on the order.
    """

    read: int = 0
    kept: int = 0
    characters: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    repaired: Counter[str] = field(default_factory=Counter[str])
    lengths: Counter[int] = field(default_factory=Counter[int])
    languages: Counter[str] = field(default_factory=Counter[str])
    samples: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )

    def keep(self, text: str) -> None:
        """Count a document as kept."""
        self.kept += 1
        self.characters += len(text)
        self.show(KEPT, text)

    def drop(self, reason: str, text: str) -> None:
        """Count a document as dropped."""
        self.dropped[reason] += 1
        self.show(reason, text)

    def show(self, fate: str, text: str) -> None:
        """Keep a document as a sample, if its hash is among the smallest."""
        beginning = text[:_SAMPLE_CHARACTERS]
        samples = self.samples.setdefault(fate, [])
        samples.append((fingerprint_text(beginning), beginning))
        samples.sort()
        del samples[_SAMPLES:]

    def add(self, other: "Tally") -> None:
        """Add the counts of another tally."""
        self.read += other.read
        self.kept += other.kept
        self.characters += other.characters
        for name in ("dropped", "repaired", "languages", "lengths"):
            getattr(self, name).update(getattr(other, name))
        for fate, samples in other.samples.items():
            self.samples[fate] = sorted([*self.samples.get(fate, []), *samples])[:_SAMPLES]

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        lengths = {str(power): count for power, count in sorted(self.lengths.items())}
        return {**vars(self), "lengths": lengths}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Tally":
        """Build a tally from the values of `to_plain`.

        Raises:
            KeyError, TypeError, ValueError: `plain` is not a tally.
        """
        return cls(
            read=int(plain["read"]),
            kept=int(plain["kept"]),
            characters=int(plain["characters"]),
            dropped=Counter(plain["dropped"]),
            repaired=Counter(plain["repaired"]),
            lengths=Counter({int(power): n for power, n in plain["lengths"].items()}),
            languages=Counter(plain["languages"]),
            samples={f: [(int(h), str(t)) for h, t in s] for f, s in plain["samples"].items()},
        )
