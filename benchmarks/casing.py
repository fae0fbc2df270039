"""Cased against uncased: tokens a word and masked accuracy in several languages.

    python -m benchmarks.casing --runs runs/casing en=wiki_en.txt de=german.txt ko=wiki_ko.txt

Of each text the first megabytes are prepared twice, with one vocabulary size, and `sprint` is
trained for equal steps on both. Held out are the same documents. Accuracies of different
tokenizers are of different tokens; the loss a character of held-out text can be compared, though
cased text has more to predict. What has ended is not done again by a second call.
"""

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import write_result
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.stream import stream_corpus
from maskwright.files import read_json, write_json
from maskwright.logs import read_metrics
from maskwright.tokenizer.stats import measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer

CASES = {"cased": "false", "uncased": "true"}
_SCORES = ("loss", "masked_accuracy", "unigram_loss", "unigram_accuracy", "num_predictions")
_HELD_OUT = CorpusConfig(valid_fraction=0.02)


def run(*command: str | Path) -> None:
    """Run a command of maskwright."""
    subprocess.run([sys.executable, "-m", "maskwright", *map(str, command)], check=True)


def cut_text(text: Path, num_bytes: int, folder: Path) -> Path:
    """Write the first documents of `text`, up to `num_bytes`, and return the file."""
    file = folder / "text.txt"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        chosen = list(_take(text, num_bytes))
        partial = file.with_suffix(".partial")
        partial.write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
        partial.rename(file)
    return file


def _take(text: Path, num_bytes: int) -> Iterator[str]:
    whole = CorpusConfig(valid_fraction=0.0)
    for _, document in stream_corpus([str(text)], whole, Counter()):
        num_bytes -= len(document.text.encode())
        if num_bytes < 0:
            return
        yield document.text


def measure(text: Path, folder: Path, lowercase: str, steps: int) -> dict[str, Any]:
    """Prepare and train one case; return its scores."""
    data = folder / "data"
    if not data.exists():
        fraction = str(_HELD_OUT.valid_fraction)
        tokenizer = ("--tokenizer.vocab_size", "8192", "--tokenizer.lowercase", lowercase)
        run("prepare", text, "--out", data, "--corpus.valid_fraction", fraction, *tokenizer)
    budget = ("--train.max_minutes", "none", "--train.max_steps", str(steps))
    train = ("pretrain", data, "--recipe", "sprint", "--runs-dir", folder, "--name", "run")
    run(*train, *budget, "--train.valid_seq_length", "128", "--auto-resume")
    final = [r for r in read_metrics(folder / "run" / "metrics.jsonl") if r["split"] == "valid"][-1]
    held_out = [
        document.text
        for split, document in stream_corpus([str(text)], _HELD_OUT, Counter())
        if split == "valid"
    ]
    stats = measure_tokenizer(Tokenizer.load(data / "tokenizer"), held_out)
    return {
        **{name: final[name] for name in _SCORES},
        "tokens_trained_on": final["tokens"],
        "tokens_a_word": round(stats.fertility, 4),
        "tokens_a_character": round(stats.tokens_per_character, 4),
        "unknown_share": stats.unknown_share,
        "loss_a_character": round(final["loss"] * stats.tokens_per_character, 4),
        "held_out_words": stats.num_words,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="+", metavar="LANGUAGE=FILE")
    parser.add_argument("--runs", type=Path, required=True, help="keeps data and runs")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--megabytes", type=float, default=14.0, help="text of each language [14]")
    arguments = parser.parse_args()
    languages: dict[str, Any] = {}
    for pair in arguments.texts:
        language, _, file = pair.partition("=")
        text = cut_text(Path(file), int(1e6 * arguments.megabytes), arguments.runs / language)
        for case, lowercase in CASES.items():
            folder = arguments.runs / language / case
            done = folder / "scores.json"
            if not done.exists():
                write_json(done, measure(text, folder, lowercase, arguments.steps))
            languages.setdefault(language, {})[case] = read_json(done, 1 << 20)
    result = {"steps": arguments.steps, "megabytes": arguments.megabytes, "languages": languages}
    write_result("casing", result)


if __name__ == "__main__":
    main()
