"""Train on generated proteins, molecules and logs with the commands of the page on sequences.

``examples/make_sequences.py`` writes 20,000 of each from a fixed seed. Then the commands of
docs/howto/sequences.md run, one after the other, and the scores stand beside baselines: k-mers with
a linear classifier of scikit-learn, frequencies of residues, of words and of templates. A part is
kept in the folder of work, so that a later call resumes, and has a result file of its own.
"""

import argparse
import csv
import json
import random
import re
import shlex
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.common import MASKWRIGHT, ROOT, recall, write_result
from examples.make_sequences import RESIDUES
from maskwright import Embedder, PseudoLikelihoodScorer, Tokenizer
from maskwright.finetuning.metrics import get_judged, read_results
from maskwright.logs import read_metrics
from maskwright.objectives.scores import ACCURACY, LOSS
from maskwright.runs.run_directory import METRICS_NAME

ATOM = r"\[[^\]]+\]|Br|Cl|%\d\d|."
NUMBERS = (r"\d+\.\d+\.\d+\.\d+=IP", r"\d+=NUM")
_RARE = 0.005  # of the lines; a rarer word is a variable of a template
_TOKENS, _LINES = 54, 200
_SMALL = (  # learns in minutes of one core
    *("--model.num_hidden_layers", 2, "--model.hidden_size", 128),
    *("--model.intermediate_size", 352),
)
_LONG = 1500, 3000  # lines, and residues of each
Scores = NDArray[np.float64]


class Commands:
    """Commands of maskwright in a folder, with the seconds of each; finished ones are not rerun."""

    def __init__(self, folder: Path, part: str) -> None:
        self.folder = folder
        self.kept = folder / f"{part}-seconds.json"
        self.seconds: dict[str, float] = {}

    def run(self, *arguments: object, out: str | None = None) -> list[Any]:
        """Run a command; return the JSON objects that it prints, if `out` names their file."""
        words = list(map(str, arguments))
        shown = f"maskwright {shlex.join(words)}" + (f" > {out}" if out else "")
        known = json.loads(self.kept.read_text()) if self.kept.exists() else {}
        path = self.folder / (out or "printed.txt")
        if shown not in known:
            began = time.perf_counter()
            with path.open("w") as file:
                printed = file if out else None
                subprocess.run([*MASKWRIGHT, *words], check=True, cwd=self.folder, stdout=printed)
            known[shown] = round(time.perf_counter() - began, 1)
            self.kept.write_text(json.dumps(known))
        self.seconds[shown] = known[shown]
        print(f"{known[shown]:8.1f} s  {shown}", flush=True)
        return [json.loads(line) for line in path.read_text().splitlines()] if out else []


def read_scores(run: Path) -> dict[str, float]:
    """Return the last validation scores of a run, with those of token frequencies."""
    [*_, last] = [one for one in read_metrics(run / METRICS_NAME) if LOSS.name in one]
    names = (LOSS.name, LOSS.baseline, ACCURACY.name, ACCURACY.baseline)
    return {name: round(last[name], 4) for name in names}


def correlate(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation."""
    found: Any = spearmanr(first, second)
    return round(float(found.statistic), 4)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def score_k_mers(train: Sequence[dict[str, str]], test: Sequence[dict[str, str]]) -> float:
    """Return the accuracy of logistic regression on the k-mers of 1 to 3 letters."""
    bag = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False)
    known = bag.fit_transform([row["text"] for row in train])
    model = LogisticRegression(C=10, max_iter=1000).fit(known, [row["label"] for row in train])
    found = bag.transform([row["text"] for row in test])
    return float(model.score(found, [row["label"] for row in test]))


def score_vectors(
    run: Path, train: Sequence[dict[str, str]], test: Sequence[dict[str, str]]
) -> float:
    """Return the accuracy of logistic regression on the vectors of a model, as `embed` has them."""
    embed = Embedder(run)
    known, found = (embed([row["text"] for row in rows]) for rows in (train, test))
    model = LogisticRegression(C=100, max_iter=2000).fit(known, [row["label"] for row in train])
    return float(model.score(found, [row["label"] for row in test]))


def score_variants(
    found: Sequence[dict[str, Any]], rows: Sequence[dict[str, str]], records: Sequence[str]
) -> dict[str, float]:
    """Return the AUC of tolerated variants by the model and by the frequencies of residues.

    Args:
        found: what ``score --each --json`` printed.
        rows: the variants.
        records: the sequences that the frequencies are counted in.
    """
    of_text = {one["id"]: one["positions"] for one in found}
    counts = Counter("".join(records))
    effects, frequencies = list[float](), list[float]()
    for row in rows:
        place = of_text[row["id"]][int(row["position"]) - 1]
        effects.append(place["alternatives"][row["residue"]] - place["score"])
        frequencies.append(np.log(counts[row["residue"]] / counts[place["token"]]))
    tolerated = [int(row["tolerated"]) for row in rows]
    by = {"model": effects, "frequency of residues": frequencies}
    return {name: round(float(roc_auc_score(tolerated, one)), 4) for name, one in by.items()}


def measure_proteins(folder: Path, minutes: float) -> dict[str, Any]:
    """Return the scores of families and of variants."""
    commands = Commands(folder, "proteins")
    commands.run(
        *("pretrain", "proteins.fasta", "--recipe", "sequences", "--name", "proteins"),
        *("--train.max_minutes", minutes, *_SMALL),
    )
    run = "runs/proteins"
    commands.run("embed", run, "--file", "families-test.csv", "--out", "families.parquet")
    commands.run(
        "embed", run, "--file", "ancestors.fasta", "--out", "residues.npy", "--tokens", "--layer", 1
    )
    each = ("score", run, "--file", "ancestors.fasta", "--each", "--alternatives", 20, "--json")
    found = {
        masks: commands.run(*each, "--masks", masks, out=f"each-{masks}.jsonl") for masks in (1, 8)
    }
    commands.run(
        *("finetune", run, "--task", "classification", "--train", "families-train.csv"),
        *("--test", "families-test.csv", "--out", "runs/families"),
    )
    predicted = commands.run(
        "predict", "runs/families", "ancestors.fasta", "--json", out="families.jsonl"
    )
    beginnings = (folder / "ancestors.fasta").read_text().split(">")[1:]
    queries = [one.splitlines()[1] for one in beginnings]
    nearest = commands.run(
        *("search", run, *queries, "--file", "families-train.csv", "--top", 1, "--json"),
        out="nearest.jsonl",
    )
    train, test = (read_table(folder / f"families-{name}.csv") for name in ("train", "test"))
    families = {row["id"]: row["label"] for row in train}
    found_by_search = [families[one["matches"][0]["id"]] for one in nearest]
    records = [row["text"] for row in train + test]
    variants = read_table(folder / "variants.csv")
    results = read_results(folder / "runs/families")
    assert results is not None
    return {
        "pretraining": read_scores(folder / run),
        "families": {
            "examples": [len(train), len(test)],
            "finetune": get_judged(results),
            "linear on vectors": round(score_vectors(folder / run, train, test), 4),
            "linear on k-mers": round(score_k_mers(train, test), 4),
            "ancestors": len(predicted),
            "ancestors right, predict": sum(
                one["label"] == f"F{n:02d}" for n, one in enumerate(predicted)
            ),
            "first 60 residues right, search": sum(
                name == f"F{n:02d}" for n, name in enumerate(found_by_search)
            ),
        },
        "variants": len(variants),
        "auc of variants": {
            f"{masks} masked in a pass": score_variants(each, variants, records)
            for masks, each in found.items()
        },
        "seconds": commands.seconds,
    }


def measure_masks(folder: Path) -> dict[str, Any]:
    """Return CPU seconds and rank correlation of k masks in a pass beside one mask."""
    rows = read_table(folder / "families-test.csv")
    texts = [row["text"][:_TOKENS] for row in rows[:: len(rows) // _LINES]][:_LINES]
    score = PseudoLikelihoodScorer(folder / "runs/proteins")
    score(texts[:2], "original")
    found = dict[int, tuple[float, list[float]]]()
    for masks in (1, 2, 4, 8, 16):
        began = time.process_time()
        means = [one.mean for one in score(texts, "original", num_masks=masks)]
        found[masks] = time.process_time() - began, means
    alone, reference = found[1]
    return {
        "lines": len(texts),
        "tokens a line": _TOKENS,
        "masks": {
            masks: {
                "cpu seconds": round(seconds, 2),
                "times as fast": round(alone / seconds, 1),
                "spearman to one mask": correlate(means, reference),
                "mean nats a token": round(float(np.mean(means)), 4),
            }
            for masks, (seconds, means) in found.items()
        },
    }


def measure_molecules(folder: Path, minutes: float) -> dict[str, Any]:
    """Return whether SMILES decode to themselves, with tokens that are atoms."""
    commands = Commands(folder, "molecules")
    commands.run(
        *("pretrain", "molecules.smi", "--recipe", "sequences", "--name", "molecules"),
        *("--tokenizer.pattern", ATOM, "--train.max_minutes", minutes, *_SMALL),
    )
    tokenizer = Tokenizer.load(folder / "runs/molecules/model")
    lines = (folder / "molecules.smi").read_text().splitlines()[1:]
    texts = [line.split()[0] for line in lines]
    encoded = [one.ids.tolist() for one in tokenizer.encode_batch(texts)]
    split = [tokenizer.tokens(ids) for ids in encoded]
    return {
        "pretraining": read_scores(folder / "runs/molecules"),
        "molecules": len(texts),
        "decode to themselves": sum(
            tokenizer.decode(ids) == text for ids, text in zip(encoded, texts, strict=True)
        ),
        "tokens are the atoms of the pattern": sum(
            parts == re.findall(ATOM, text) for parts, text in zip(split, texts, strict=True)
        ),
        "seconds": commands.seconds,
    }


def measure_tokenizers(folder: Path) -> dict[str, Any]:
    """Return the seconds of tokenizers of pieces on megabytes without a blank."""
    rng, commands = random.Random(0), Commands(folder, "tokenizers")
    lines = ["".join(rng.choices(RESIDUES, k=_LONG[1])) for _ in range(_LONG[0])]
    (folder / "long.txt").write_text("\n".join(lines) + "\n")
    for kind in ("bpe", "unigram"):
        for size in (4096, 30_000):
            out, where = f"{kind}-{size}", ("tokenizer", "train", "long.txt")
            flags = ("--tokenizer.kind", kind, "--tokenizer.vocab_size", size, "--out", out)
            shutil.rmtree(folder / out, ignore_errors=True)
            commands.run(*where, *flags)
    return {"lines": _LONG[0], "residues a line": _LONG[1], "seconds": commands.seconds}


def replace_numbers(text: str) -> str:
    """Return a text with the replacements of the page."""
    for rule in NUMBERS:
        pattern, _, token = rule.partition("=")
        text = re.sub(pattern, token, text)
    return text


def build_baselines(lines: Sequence[str]) -> dict[str, Callable[[str], float]]:
    """Return scores of a line from counts of words and of templates; the lower, the stranger.

    A template is a line with its rare words replaced, as in SLCT (Vaarandi 2003).
    """
    words = Counter(word for line in lines for word in line.split())
    total = words.total()
    frequent = {word for word, count in words.items() if count >= _RARE * len(lines)}

    def cut(line: str) -> str:
        return " ".join(word if word in frequent else "*" for word in line.split())

    templates, whole = Counter(map(cut, lines)), Counter(lines)

    def score_words(line: str) -> list[float]:
        return [float(np.log((words[word] + 1) / (total + 1))) for word in line.split()]

    return {
        "unigram, mean": lambda line: float(np.mean(score_words(line))),
        "unigram, rarest word": lambda line: min(score_words(line)),
        "count of the template": lambda line: float(templates[cut(line)]),
        "count of the line": lambda line: float(whole[line]),
    }


def list_auc(kinds: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return the AUC of all anomalies, and of each kind against ordinary lines."""
    found = dict[str, float]()
    for kind in ("all", *sorted({*kinds} - {""})):
        kept = [n for n, one in enumerate(kinds) if kind == "all" or one in ("", kind)]
        truth = [bool(kinds[n]) for n in kept]
        found[kind] = round(float(roc_auc_score(truth, [-scores[n] for n in kept])), 4)
    return found


def measure_logs(folder: Path, minutes: float) -> dict[str, Any]:
    """Return the AUC of planted anomalies by scores of the model and by baselines."""
    commands = Commands(folder, "logs")
    commands.run(
        *("pretrain", "app.log", "--name", "logs", "--train.max_minutes", minutes),
        *("--corpus.replace", *NUMBERS, "--corpus.deduplicate", "false"),
    )
    known = [replace_numbers(line) for line in (folder / "app.log").read_text().splitlines()]
    tested = [replace_numbers(line) for line in (folder / "test.log").read_text().splitlines()]
    (folder / "replaced.log").write_text("\n".join(tested) + "\n")
    kinds = json.loads((folder / "test-kinds.json").read_text())
    auc = {
        name: list_auc(kinds, list(map(score, tested)))
        for name, score in build_baselines(known).items()
    }
    speed, means = dict[str, float](), defaultdict[str, list[float]](list)
    for flags in (("--metric", "original"), ("--masks", 4), ("--masks", 8)):
        found = commands.run(
            *("score", "runs/logs", "--file", "replaced.log", "--tokens", "--json", *flags),
            out=f"scores-{flags[1]}.jsonl",
        )
        name = "one mask" if flags[0] == "--metric" else f"{flags[1]} masks"
        speed[name] = round(len(found) / [*commands.seconds.values()][-1], 1)
        means[name] = [one["mean"] for one in found]
        worst = [min(token["score"] for token in one["tokens"]) for one in found]
        auc[f"model, {name}, mean"] = list_auc(kinds, means[name])
        auc[f"model, {name}, worst token"] = list_auc(kinds, worst)
    return {
        "pretraining": read_scores(folder / "runs/logs"),
        "lines": len(tested),
        "anomalies": {kind: count for kind, count in Counter(kinds).items() if kind},
        "auc": auc,
        "lines a second": speed,
        "spearman to one mask": {
            name: correlate(one, means["one mask"]) for name, one in means.items()
        },
        "seconds": commands.seconds,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the folder of work; a later call resumes")
    parser.add_argument("--minutes", type=float, default=5, help="of each training [5]")
    parts = ("proteins", "masks", "molecules", "tokenizers", "logs")
    parser.add_argument("--part", choices=parts, help="measure this part only [all]")


def main(arguments: argparse.Namespace) -> None:
    folder, minutes = arguments.folder.resolve(), arguments.minutes
    if not (folder / "app.log").exists():
        script = ("python", ROOT / "examples" / "make_sequences.py", folder)
        subprocess.run(script, check=True)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "proteins": lambda: measure_proteins(folder, minutes),
        "masks": lambda: measure_masks(folder),
        "molecules": lambda: measure_molecules(folder, minutes / 4),
        "tokenizers": lambda: measure_tokenizers(folder),
        "logs": lambda: measure_logs(folder, minutes),
    }
    for name in [arguments.part] if arguments.part else parts:
        found = recall(folder / f"{name}.json", parts[name])
        print(json.dumps(found, indent=2))
        write_result(f"sequences-{name}", found)
