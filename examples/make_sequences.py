"""Proteins, DNA, molecules and logs from a fixed seed, to try the recipe `sequences` on::

    python examples/make_sequences.py sequences/

They are made up, so that a model can be compared with what is known about them: families of
proteins descend from ancestors whose columns tolerate few residues, DNA has promoters with motifs,
molecules are joined from fragments, and a log has lines that break its order. Only the standard
library is used; the same number of sequences gives the same files.
"""

import argparse
import csv
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
ALIKE = ("ILMV", "FWY", "DE", "KRH", "ST", "NQ", "AG", "C", "P")  # exchanged in evolution
NUM_FAMILIES = 20
FRAGMENTS = ("C", "CC", "C(=O)", "N", "O", "c1ccccc1", "C(F)(F)F", "[N+](=O)[O-]", "S(=O)(=O)")
ENDS = ("C", "O", "N", "Cl", "Br", "F", "C#N")
STEPS = ("open", "auth", "read", "write", "close")


class Family:
    """A family: an ancestor, and for each column the residues that it tolerates."""

    def __init__(self, rng: random.Random) -> None:
        self.columns: list[str] = []
        for _ in range(rng.randint(90, 220)):
            group = rng.choice(ALIKE)
            self.columns.append(rng.choice(group) if rng.random() < 0.4 else group)

    def draw(self, rng: random.Random) -> str:
        """Return a member: tolerated residues, some of any kind, and pieces inserted or lost."""
        letters = [rng.choice(RESIDUES if rng.random() < 0.25 else one) for one in self.columns]
        for _ in range(rng.randint(0, 3)):
            place = rng.randrange(len(letters))
            size = rng.randint(1, 6)
            letters[place : place + rng.choice((0, size))] = rng.choices(RESIDUES, k=size)
        return "".join(letters)


def wrap(text: str, width: int = 60) -> str:
    """Return a sequence in lines."""
    return "\n".join(text[start : start + width] for start in range(0, len(text), width))


def write_fasta(path: Path, records: Sequence[tuple[str, str]]) -> None:
    """Write records of a header and a sequence."""
    path.write_text("".join(f">{head}\n{wrap(text)}\n" for head, text in records))


def write_table(path: Path, rows: Sequence[tuple[str, ...]], names: tuple[str, ...]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *rows])


def make_proteins(folder: Path, number: int) -> None:
    """Write proteins without labels, labeled ones of the same families, and variants."""
    rng = random.Random(1)
    families = [Family(rng) for _ in range(NUM_FAMILIES)]
    drawn = [(rng.choice(families)) for _ in range(number)]
    write_fasta(
        folder / "proteins.fasta",
        [(f"P{n:06d} made up", one.draw(rng)) for n, one in enumerate(drawn)],
    )
    for name, each in (("train", 10), ("test", 40)):
        rows = [
            (f"{name}{n}", family.draw(rng), f"F{n // each:02d}")
            for n, family in enumerate(one for one in families for _ in range(each))
        ]
        write_table(folder / f"families-{name}.csv", rows, ("id", "text", "label"))
    rows = list[tuple[str, ...]]()
    for number, family in enumerate(families):
        ancestor = [rng.choice(one) for one in family.columns]
        for _ in range(20):
            place = rng.randrange(len(ancestor))
            new = rng.choice([one for one in RESIDUES if one != ancestor[place]])
            fits = new in family.columns[place]
            rows.append((f"A{number:02d}", "".join(ancestor), str(place + 1), new, str(int(fits))))
    write_table(folder / "variants.csv", rows, ("id", "text", "position", "residue", "tolerated"))


def make_dna(folder: Path, number: int) -> None:
    """Write DNA, a half with a motif at a fixed distance from another, and labels."""
    rng, rows = random.Random(2), list[tuple[str, ...]]()
    for n in range(number):
        letters = rng.choices("ACGT", k=120)
        if is_promoter := rng.random() < 0.5:
            start = rng.randrange(10, 60)
            letters[start : start + 6] = "TTGACA"
            letters[start + 23 : start + 29] = "TATAAT"
        rows.append((f"D{n:06d}", "".join(letters), "promoter" if is_promoter else "other"))
    write_fasta(folder / "dna.fasta", [(one[0], one[1]) for one in rows])
    write_table(folder / "promoters.csv", rows[:2000], ("id", "text", "label"))


def make_molecules(folder: Path, number: int) -> None:
    """Write SMILES with ids."""
    rng = random.Random(3)
    lines = list[str]()
    for n in range(number):
        parts = rng.choices(FRAGMENTS, k=rng.randint(2, 8))
        rings = iter(range(1, 10))
        parts = [part.replace("1", str(next(rings))) if "1" in part else part for part in parts]
        lines.append(f"{rng.choice(ENDS)}{''.join(parts)}{rng.choice(ENDS)} M{n:06d}")
    (folder / "molecules.smi").write_text("smiles id\n" + "\n".join(lines) + "\n")


def list_events(rng: random.Random, number: int) -> Iterator[tuple[str, bool]]:
    """Yield lines of sessions, and True for those that break their order."""
    for _ in range(number // len(STEPS)):
        session, address = rng.randrange(10_000), f"10.0.{rng.randrange(9)}.{rng.randrange(255)}"
        for step in STEPS:
            is_wrong = rng.random() < 0.01
            shown = rng.choice([one for one in STEPS if one != step]) if is_wrong else step
            status = rng.choice(("denied", "timeout")) if is_wrong else "ok"
            yield f"INFO session {session} from {address} {shown} {status} after {step}", is_wrong


def make_logs(folder: Path, number: int) -> None:
    """Write a log to train on, and another with labels beside it."""
    rng = random.Random(4)
    lines = [line for line, is_wrong in list_events(rng, number) if not is_wrong]
    (folder / "app.log").write_text("\n".join(lines) + "\n")
    tested = list(list_events(rng, 2000))
    (folder / "test.log").write_text("\n".join(line for line, _ in tested) + "\n")
    (folder / "test-labels.json").write_text(json.dumps([int(one) for _, one in tested]))


def main() -> None:
    """Write all files into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=20_000, help="of sequences of each kind")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for make in (make_proteins, make_dna, make_molecules, make_logs):
        make(arguments.folder, arguments.number)


if __name__ == "__main__":
    main()
