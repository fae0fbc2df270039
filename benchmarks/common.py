"""What every benchmark does: find the corpora, write a dated result file."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.stream import stream_corpus
from maskwright.provenance import describe_cpu, describe_environment

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"

Result = Mapping[str, Any]


def find_corpus(name: str) -> Path:
    """A corpus below MASKWRIGHT_DATA; ends the program with one line if it is not there."""
    root = os.environ.get("MASKWRIGHT_DATA")
    if not root:
        sys.exit("set MASKWRIGHT_DATA to a folder with the corpora (wiki_en/, wiki_ko/, …)")
    path = Path(root) / name
    if not path.exists():
        sys.exit(f"{path} does not exist")
    return path


def read_wikipedia() -> Iterator[str]:
    """The articles of English Wikipedia, cleaned as for training."""
    paths = [str(find_corpus("wiki_en/wiki_en.train.txt.gz"))]
    for _, document in stream_corpus(paths, CorpusConfig(valid_fraction=0.0), Counter()):
        yield document.text


@contextmanager
def find_prepared(folder: Path | None, sentences: bool = False) -> Iterator[Path]:
    """`folder`, or else English Wikipedia, prepared for the time of the context.

    Args:
        sentences: every document is one of its sentences.
    """
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder, text = Path(scratch) / "data", Path(scratch) / "sentences" / "train.txt"
        if sentences:
            program = [sys.executable, "-m", "benchmarks.sentences_corpus", str(text.parent)]
            subprocess.run(program, check=True)
        else:
            text = find_corpus("wiki_en/wiki_en.train.txt.gz")
        command = [sys.executable, "-m", "maskwright", "prepare", str(text), "--out", str(folder)]
        lines = ["--corpus.documents", "line"] if sentences else []
        subprocess.run([*command, "--tokenizer.vocab_size", "8192", *lines], check=True)
        yield folder


def hardware_name() -> str:
    """A short name for file names, such as ``amd-epyc-2c``."""
    words = [w for w in describe_cpu().lower().replace("(r)", "").split() if w.isalnum()][:2]
    return "-".join([*words, f"{os.cpu_count()}c"]) or platform.machine()


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Writes ``results/DATE_HARDWARE_NAME.json`` with the environment beside the figures."""
    RESULTS.mkdir(exist_ok=True)
    environment = describe_environment()
    program, arguments = Path(sys.argv[0]), sys.argv[1:]
    name_of_module = program.parent.name if program.stem == "__main__" else program.stem
    arguments = [Path(part).name if "/" in part else part for part in arguments]
    environment["command"] = ["python", "-m", f"benchmarks.{name_of_module}", *arguments]
    if source := environment["source"]:
        is_clean = not source["diff"] and _is_committed()
        environment["source"] = {**source, "diff": "clean" if is_clean else "modified"}
    for package in ("transformers", "datasets"):
        with suppress(PackageNotFoundError):
            environment["packages"][package] = version(package)
    path = RESULTS / f"{date.today():%Y-%m-%d}_{hardware_name()}_{name}.json"
    content = {"name": name, **result, "environment": environment}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")
    return path


def _is_committed() -> bool:
    """Whether the programs in this folder are those of the revision."""
    command = ["git", "-C", str(RESULTS.parent), "diff", "--quiet", "HEAD", "--", "*.py"]
    return subprocess.run(command).returncode == 0


def find_result(name: str, folder: Path = RESULTS) -> Result | None:
    """What the newest result file of this name says, and its `file` name, if there is one."""
    found = find_results(name, folder)
    return found[-1] if found else None


def find_results(name: str, folder: Path = RESULTS) -> list[Result]:
    """What all result files of this name say, the newest last, each with its `file` name."""
    return [
        {**json.loads(file.read_text(encoding="utf-8")), "file": file.name}
        for file in sorted(folder.glob(f"*_{name}.json"))
    ]


def require_result(name: str) -> Result:
    """The same, where a page is nothing without it."""
    result = find_result(name)
    assert result is not None, f"no result file of {name} has been committed"
    return result


def put_section(page: Path, section: str) -> None:
    """Replaces what stands between the markers of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + section + END + after, encoding="utf-8")
