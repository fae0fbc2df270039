"""Proteins, DNA, molecules and logs from a fixed seed, to try the recipe `sequences` on::

    python examples/make_sequences.py sequences/

They are made up, so that a model can be compared with what is known about them: families of
proteins have blocks of columns that tolerate few residues, and a part of the members are near
copies of others; DNA has promoters with motifs; molecules are joined from
fragments of valid SMILES; a log has planted anomalies of three kinds. Only the standard library is
used; the same number of sequences gives the same files.
"""

import argparse
import csv
import json
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
ALIKE = ("ILMV", "FWY", "DE", "KRH", "ST", "NQ", "AG", "C", "P")  # exchanged in evolution
NUM_FAMILIES = 12
NOISE = 0.15  # of the residues of conserved blocks
COPIES = 0.2  # of the proteins, near copies of another one
FRAGMENTS = (
    "C", "CC", "C(=O)", "N", "O", "c1ccc(cc1)", "c1ccnc(c1)", "C(C)", "C(F)", "S(=O)(=O)",
    "[C@H](N)", "[C@@H](O)", "C1CCN(CC1)", "C=C", "N(C)", "[Si](C)(C)", "C(Cl)", "C(Br)",
)  # fmt: skip
ENDS = ("C", "O", "N", "Cl", "Br", "F", "C#N", "C(F)(F)F", "[N+](=O)[O-]", "C(=O)[O-]")
SERVICES = ("auth", "billing", "cart", "mail", "orders", "search", "stock", "users")
OBJECTS = (
    "record", "invoice", "item", "message", "basket", "index", "picture", "contract", "label",
    "report", "ticket", "address",
)  # fmt: skip
SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "ti", "vo", "be", "du")
KINDS = ("pair", "order", "new")  # of anomalies


class Family:
    """A family: for each column the residues that it tolerates, few in blocks and all between."""

    def __init__(self, rng: random.Random) -> None:
        self.columns: list[str] = []
        for _ in range(rng.randint(3, 5)):
            self.columns += [RESIDUES] * rng.randint(6, 16)
            groups = rng.choices(ALIKE, k=rng.randint(6, 10))
            self.columns += [rng.choice(one) if rng.random() < 0.5 else one for one in groups]

    def draw(self, rng: random.Random) -> str:
        """Return a member: tolerated residues, some of any kind, and pieces inserted or lost."""
        letters = [rng.choice(RESIDUES if rng.random() < NOISE else one) for one in self.columns]
        for _ in range(rng.randint(0, 3)):
            place = rng.randrange(len(letters))
            size = rng.randint(1, 6)
            letters[place : place + rng.choice((0, size))] = rng.choices(RESIDUES, k=size)
        return "".join(letters)


def copy_nearly(rng: random.Random, text: str) -> str:
    """Return a sequence with one residue changed."""
    place = rng.randrange(len(text))
    other = rng.choice([one for one in RESIDUES if one != text[place]])
    return text[:place] + other + text[place + 1 :]


def draw_members(rng: random.Random, families: Sequence[Family]) -> Iterator[str]:
    """Yield a member of each of these families; some are near copies of an earlier one."""
    known = dict[int, list[str]]()
    for family in families:
        others = known.setdefault(id(family), [])
        is_copy = bool(others) and rng.random() < COPIES
        others.append(copy_nearly(rng, rng.choice(others)) if is_copy else family.draw(rng))
        yield others[-1]


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
    drawn = draw_members(rng, [rng.choice(families) for _ in range(number)])
    records = [(f"P{n:06d} made up", text) for n, text in enumerate(drawn)]
    write_fasta(folder / "proteins.fasta", records)
    for name, each in (("train", 6), ("test", 60)):
        names = [n for n in range(NUM_FAMILIES) for _ in range(each)]
        texts = draw_members(rng, [families[n] for n in names])
        labeled = [
            (f"{name}{row}", text, f"F{n:02d}")
            for row, (n, text) in enumerate(zip(names, texts, strict=True))
        ]
        write_table(folder / f"families-{name}.csv", labeled, ("id", "text", "label"))
    ancestors, rows = list[tuple[str, str]](), list[tuple[str, ...]]()
    for number, family in enumerate(families):
        ancestor = [rng.choice(one) for one in family.columns]
        ancestors.append((f"A{number:02d}", "".join(ancestor)))
        for _ in range(50):
            place = rng.randrange(len(ancestor))
            new = rng.choice([one for one in RESIDUES if one != ancestor[place]])
            fits = new in family.columns[place]
            rows.append((f"A{number:02d}", str(place + 1), new, str(int(fits))))
    write_fasta(folder / "ancestors.fasta", ancestors)
    write_table(folder / "variants.csv", rows, ("id", "position", "residue", "tolerated"))


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
        body = "".join(rng.choices(FRAGMENTS, k=rng.randint(2, 8)))
        lines.append(f"C{body}{rng.choice(ENDS)} M{n:06d}")  # a closed ring's digit is free again
    (folder / "molecules.smi").write_text("smiles id\n" + "\n".join(lines) + "\n")


class Log:
    """Lines of templates, in which a user works for one service and a service calls two others."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        names = ["".join(parts) for parts in product(SYLLABLES, repeat=4)]
        self.users = {service: rng.sample(names, 80) for service in SERVICES}
        self.called = {one: rng.sample(SERVICES, 2) for one in SERVICES}

    def draw(self, of_pair: bool = False) -> str:
        """Return a line.

        Args:
            of_pair: name a user or a called service of another service.
        """
        rng = self.rng
        service = rng.choice(SERVICES)
        other = rng.choice([one for one in SERVICES if one != service]) if of_pair else service
        user = rng.choice([one for one in self.users[other] if other == service or self.is_of(one)])
        strange = [one for one in SERVICES if one not in self.called[service]]
        called = rng.choice(strange if of_pair else self.called[service])
        number, address = rng.randrange(10_000), f"10.0.{rng.randrange(9)}.{rng.randrange(255)}"
        templates = [
            f"INFO {service} user {user} opened session {number} from {address}",
            f"INFO {service} user {user} closed session {number} after {rng.randrange(900)} s",
            f"INFO {service} user {user} read {rng.choice(OBJECTS)} {number} in 0.{number} ms",
            f"INFO {service} user {user} wrote {rng.choice(OBJECTS)} {number} to shard {number}",
            f"WARN {service} call to {called} took {number} ms, retry {rng.randrange(5)}",
        ]
        if not of_pair:
            templates.append(f"DEBUG {service} cache holds {number} entries of {number} bytes")
        return rng.choice(templates)

    def is_of(self, user: str) -> bool:
        """Return True if a user works for one service only."""
        return sum(user in found for found in self.users.values()) == 1

    def draw_anomaly(self, kind: str) -> str:
        """Return a line with an anomaly: a strange pair, two words exchanged, or a new event."""
        if kind == "pair":
            return self.draw(of_pair=True)
        if kind == "new":
            return self.draw_new()
        words = self.draw().split()
        first, second = sorted(self.rng.sample(range(len(words) - 1), 2))
        words[first], words[second] = words[second], words[first]
        return " ".join(words)

    def draw_new(self) -> str:
        """Return a line of a template that no ordinary line has, of words that others have."""
        service, number = self.rng.choice(SERVICES), self.rng.randrange(100)
        return f"WARN {service} cache closed after retry {number} of user session, took {number} s"


def make_logs(folder: Path, number: int) -> None:
    """Write a log to train on, and another with the kind of each line beside it."""
    rng = random.Random(4)
    log = Log(rng)
    lines = [log.draw() for _ in range(number)]
    (folder / "app.log").write_text("\n".join(lines) + "\n")
    kinds = [rng.choice(KINDS) if rng.random() < 0.05 else "" for _ in range(4000)]
    tested = [log.draw_anomaly(kind) if kind else log.draw() for kind in kinds]
    (folder / "test.log").write_text("\n".join(tested) + "\n")
    (folder / "test-kinds.json").write_text(json.dumps(kinds))


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
