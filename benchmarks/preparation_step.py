"""One step of a preparation, alone, in a process of its own (see `preparation_scale`).

    python -m benchmarks.preparation_step STEP TEXT SCRATCH CORES

It writes ``SCRATCH/facts.json``: the seconds of the step without the start of the process, and
those among them that are not shared out.
"""

import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.sources import find_sources
from maskwright.corpus.stream import Split
from maskwright.preparation import select_documents as selection
from maskwright.preparation.chunks import Chunk, gather_chunks
from maskwright.preparation.cluster.spool import Spool
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.dumps import write_down_dumps
from maskwright.preparation.encode_chunks import encode_chunks
from maskwright.preparation.engines import LocalEngine
from maskwright.preparation.input_identity import fingerprint_input
from maskwright.preparation.pipeline import prepare
from maskwright.preparation.select_documents import write_down_selected
from maskwright.preparation.splits import split_corpus
from maskwright.preparation.vocabulary import obtain_tokenizer
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer

TOKENIZER_NAME, EVALUATION_NAME, FACTS_NAME = "given-tokenizer", "evaluation.txt", "facts.json"
DUMP_SUFFIX = ".xml.bz2"  # of the text as a dump, beside it
_LANGUAGE = {"language": "en", "language_confidence": 0.1}
# Each step of selection alone, none of them, and all together.
SELECTION: dict[str, dict[str, object]] = {
    "nothing": {},
    "repair": {"repair": True},
    "language": _LANGUAGE,
    "boilerplate": {"drop_boilerplate": True},
    "quality": {"quality": True},
    "near duplicates": {"near_duplicates": 0.8},
    "decontamination": {"decontaminate": (EVALUATION_NAME,)},
}
SELECTION["everything"] = {k: v for step in tuple(SELECTION.values()) for k, v in step.items()}
# Steps in which the other cores have nothing to do.
SEQUENTIAL = ("hashing", "reading", "cleaning", "handing out")
STEPS = (
    "wikitext",
    *SEQUENTIAL,
    *(f"selection: {name}" for name in SELECTION),
    "tokenizer",
    "encoding",
    "everything",
)

Seconds = dict[str, float]


class Step:
    """The steps over one text.

    Attributes:
        apart: the seconds that are not shared out, by function.
    """

    def __init__(self, text: Path, scratch: Path, cores: int) -> None:
        self.paths, self.scratch, self.cores = [str(text)], scratch, cores
        self.engine, self.apart = LocalEngine(cores), Seconds()

    def configure(self, steps: str = "nothing") -> PrepareConfig:
        """Return a configuration with these steps of selection."""
        values = dict(SELECTION[steps])
        if "decontaminate" in values:
            values["decontaminate"] = (str(self.scratch.parent / EVALUATION_NAME),)
        select = from_mapping(SelectionConfig, values)
        return PrepareConfig(
            select=select, tokenizer=TokenizerConfig(vocab_size=8192), workers=self.cores
        )

    def run(self, step: str) -> None:
        """Run a step to its end."""
        kind, _, steps = step.partition(": ")
        run: dict[str, Callable[[], object]] = {
            "wikitext": self._read_dump,
            "hashing": lambda: fingerprint_input(self.paths, self.configure(), 0),
            "reading": self._read,
            "cleaning": lambda: deque(self._clean(), maxlen=0),
            "handing out": self._hand_out,
            "selection": partial(self._select, steps),
            "tokenizer": self._train,
            "encoding": self._encode,
            "everything": partial(
                prepare, self.paths, self.scratch / "out", self.configure("everything")
            ),
        }
        with self._timing(selection, "find_near_duplicates"):
            run[kind]()

    @contextmanager
    def _timing(self, owner: object, name: str) -> Iterator[None]:
        """Add up the time that a function takes."""
        function = getattr(owner, name)

        def timed(*arguments: object) -> object:
            start = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.apart[name] = self.apart.get(name, 0.0) + time.perf_counter() - start

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, function)

    def _read_dump(self) -> None:
        dump = str(Path(self.paths[0]).with_suffix(DUMP_SUFFIX))
        write_down_dumps(
            [dump], self.scratch, self.configure(), Counter(), self.engine, lambda line: None
        )

    def _read(self) -> None:
        counts: Counter[str] = Counter()
        for source in find_sources(self.paths, counts):
            deque(read_source(source, CorpusConfig(), counts), maxlen=0)

    def _clean(self) -> Iterator[tuple[Split, str]]:
        return split_corpus(self.paths, CorpusConfig(), Counter())

    def _chunks(self) -> Iterator[Chunk]:
        return gather_chunks(self._clean(), PrepareConfig().shard_megabytes * 1_000_000)

    def _hand_out(self) -> None:
        spool = Spool(self.scratch / "spool")
        spool.create(_begin_nothing)
        with self._timing(Spool, "add"):
            for index, chunk in enumerate(self._chunks()):
                spool.add(index, chunk)

    def _select(self, steps: str) -> None:
        config = self.configure(steps)
        write_down_selected(
            self.paths, self.scratch, config, Counter(), self.engine, lambda line: None
        )

    def _train(self) -> None:
        obtain_tokenizer(self.paths, self.scratch, self.configure(), 0, lambda line: None)

    def _encode(self) -> None:
        given = Tokenizer.load(self.scratch.parent / TOKENIZER_NAME)
        given.save(self.scratch / "tokenizer")
        deque(encode_chunks(self._chunks(), self.scratch, self.engine), maxlen=0)


def _begin_nothing() -> Callable[[Chunk], object]:
    return str


def measure(name: str, text: Path, scratch: Path, cores: int) -> None:
    """Run a step on the first cores and write down its seconds."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    step = Step(text, scratch, cores)
    start = time.perf_counter()
    step.run(name)
    facts = {"seconds": time.perf_counter() - start, "apart": step.apart}
    (scratch / FACTS_NAME).write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    step_name, text_file, scratch_folder, num_cores = sys.argv[1:]
    measure(step_name, Path(text_file), Path(scratch_folder), int(num_cores))
