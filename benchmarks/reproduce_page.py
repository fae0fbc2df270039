"""Writes the tables of docs/reproduce.md from the newest result files.

    python -m benchmarks.reproduce_page

A system without a result file has no row, and a picture that has not been drawn no place.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.ablate import BASELINE, GROUPS
from benchmarks.common import RESULTS, Result, find_result, find_results, put_section
from benchmarks.plots import IMAGES, find_systems
from benchmarks.reproduce import ON_WIKI, SYSTEMS

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"
# What the author of the notebook reports of his own sentences, tokens and masks, on a GPU.
REPORTED = (
    "| as its author reports it: 100 epochs, 4.3 hours of a GPU | 6.86 M | | 225 M | | | 0.5475 | |"
)
PICTURES = {
    "classics": "Validation loss against wall-clock, the classic systems and ours",
    "shakespeare": "Tiny Shakespeare: constant rows and rows that grow",
    "ablations": "Ablations of sprint at equal wall-clock",
}


def write_section(results: Path = RESULTS, images: Path = IMAGES) -> str:
    """The tables as Markdown, without their markers."""
    systems = find_systems(results)
    ablations = find_result("ablations-wiki_en", results)
    lines: list[str] = []
    if systems:
        lines += [_describe_machine(systems.values()), *_show("classics", images)]
    for corpus, write in (
        ("shakespeare", write_shakespeare),
        ("sentences", write_sentences),
        ("wiki", partial(write_wiki, title="English Wikipedia in lower case, by time and loss")),
        ("wiki-cased", partial(write_wiki, title="English Wikipedia as it is: our recipes")),
    ):
        chosen = {name: r for name, r in systems.items() if r["corpus"] == corpus}
        if chosen:
            lines += write(chosen)
        if chosen and corpus == "shakespeare":
            lines += _show("shakespeare", images)
    lines += write_blimp(find_results("minimal-pairs", results))
    if ablations and ablations["runs"]:
        lines += [*write_ablations(ablations), *_show("ablations", images)]
    return "\n".join(lines or ["No run has ended yet."]) + "\n"


def write_shakespeare(systems: Mapping[str, Result]) -> list[str]:
    """Losses in nats and bits a character."""
    head = ["run", "time", "steps", "characters seen", "loss", "masked accuracy", "file"]
    rows = [
        [
            f"`{name}`: {result['title']}",
            _describe_time(result),
            f"{result['final']['step']:,}",
            _millions(result["final"]["tokens"]),
            f"{result['final']['loss']:.3f}",
            _accuracy(result["final"]),
            _link(result),
        ]
        for name, result in systems.items()
    ]
    return _table("Tiny Shakespeare, characters", head, rows)


def write_sentences(systems: Mapping[str, Result]) -> list[str]:
    """Scores on the test sentences, the same hidden tokens for all."""
    head = [
        *("run", "parameters", "time", "tokens", "loss, 15 % [MASK]", "accuracy"),
        *("one token hidden", "file"),
    ]
    rows = [
        [
            f"`{name}`: {result['title']}{_flags(result)}",
            _millions(result["test"]["parameters"]),
            _describe_time(result),
            _millions(result["final"]["tokens"]),
            f"{result['test']['masked_loss']:.3f}",
            f"{result['test']['masked_accuracy']:.3f}",
            f"{result['test']['single_mask_accuracy']:.4f} "
            f"± {result['test']['single_mask_interval']:.4f}",
            _link(result),
        ]
        for name, result in systems.items()
    ]
    lines = _table("Sentences of Wikipedia, 2,000 for the test", head, rows)
    return [*lines[:-1], REPORTED, ""]


def write_wiki(systems: Mapping[str, Result], title: str) -> list[str]:
    """All on the same held-out articles, in rows of 128."""
    head = ["system", "recipe", "time", "steps", "tokens", "loss", "masked accuracy", "file"]
    ordered = sorted(
        systems.items(), key=lambda pair: (pair[1]["minutes"], pair[1]["final"]["loss"])
    )
    rows = [
        [
            result["title"].replace(f" (`{result['recipe']}`)", ""),
            f"`{result['recipe']}`{_flags(result)}",
            _describe_time(result),
            f"{result['final']['step']:,}",
            _millions(result["final"]["tokens"]),
            f"{result['final']['loss']:.3f}",
            _accuracy(result["final"]) + _pairs(result["final"]),
            _link(result),
        ]
        for _, result in ordered
    ]
    return _table(title, head, rows)


def write_blimp(results: Sequence[Result]) -> list[str]:
    """Accuracies on BLiMP of our models in all files: overall, and by phenomenon."""
    models = {
        name: {**found, "file": _link(result)}
        for result in results
        for name, found in result["models"].items()
        if name in SYSTEMS
    }
    if not models:
        return []
    names = [name for name in _names_of(models) if _is_phenomenon(name)]
    rows = [
        [
            name.removeprefix("blimp/").replace("_", " "),
            *(_with_interval(found["accuracy"][name]) for found in models.values()),
        ]
        for name in names
    ]
    rows.append(["", *(found["file"] for found in models.values())])
    pairs = max(found["pairs"] for found in models.values())
    paradigms = sum(name.count("/") == 2 and "/field/" not in name for name in _names_of(models))
    head = ["", *(f"`{name}`, {_millions(f['parameters'])}" for name, f in models.items())]
    return _table(f"BLiMP, {pairs:,} pairs of {paradigms} paradigms (chance: 0.5)", head, rows)


def _names_of(models: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """The names of the scores of the first model."""
    return next(iter(models.values()))["accuracy"]


def _is_phenomenon(name: str) -> bool:
    return name.count("/") == 1 and name != "blimp/mean_over_pairs"


def _with_interval(figures: list[float]) -> str:
    value, low, high = figures
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def write_ablations(result: Result) -> list[str]:
    """Means over seeds, and the difference from the baseline."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in result["runs"]:
        runs.setdefault(run["variant"], []).append(run)
    if BASELINE not in runs:
        return []
    base = mean(run["loss"] for run in runs[BASELINE])
    rows: list[list[str]] = []
    for group, variants in {"": [BASELINE], **GROUPS}.items():
        for variant in variants:
            if variant not in runs:
                continue
            losses = [run["loss"] for run in runs[variant]]
            options = result["baseline"] if variant == BASELINE else runs[variant][0]["options"]
            rows.append(
                [
                    group,
                    f"`{variant}`",
                    " ".join(f"`{option}`" for option in options),
                    _millions(mean(run["tokens"] for run in runs[variant])),
                    f"{mean(losses):.3f} ({', '.join(f'{loss:.3f}' for loss in losses)})",
                    "" if variant == BASELINE else f"{mean(losses) - base:+.3f}",
                    f"{mean(run['masked_accuracy'] for run in runs[variant]):.3f}",
                ]
            )
    title = (
        f"Ablations of `sprint` on English Wikipedia, {result['minutes']:g} minutes a run, "
        f"{result['runs_at_once']} at once"
    )
    head = ["group", "variant", "flags", "tokens", "loss (seeds)", "difference", "accuracy"]
    return [*_table(title, head, rows), _link(result), ""]


def _table(title: str, head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _show(picture: str, images: Path) -> list[str]:
    drawn = (images / f"{picture}.svg").exists()
    return [f"![{PICTURES[picture]}](images/{picture}.svg)", ""] if drawn else []


def _describe_machine(systems: Iterable[Result]) -> str:
    environments = [result["environment"] for result in systems]
    machines = sorted({f"{e['cpu_count']} cores of an {e['cpu']}" for e in environments})
    versions = sorted({e["packages"]["torch"] for e in environments})
    return f"On {', '.join(machines)}, torch {', '.join(versions)}.\n"


def _describe_time(result: Result) -> str:
    """Minutes, and on what: runs of one table may differ in it."""
    environment = result["environment"]
    cores = result.get("threads", environment["cpu_count"])
    maker = environment["cpu"].split()[0].replace("(R)", "")
    return f"{result['minutes']:g} min, {cores} core{'s' * (cores != 1)} ({maker})"


def _link(result: Result) -> str:
    return f"[file](../benchmarks/results/{result['file']})"


def _millions(number: float) -> str:
    return f"{number / 1e6:.2f} M"


def _accuracy(final: Mapping[str, Any]) -> str:
    return f"{final['masked_accuracy']:.3f} (most frequent: {final['unigram_accuracy']:.3f})"


def _flags(result: Result) -> str:
    """What a run was told beside its recipe, but for what all runs of a table were."""
    pairs = zip(result["options"][::2], result["options"][1::2], strict=True)
    told = [f" `{name} {value}`" for name, value in pairs if name not in ON_WIKI]
    return "".join(told)


def _pairs(final: Mapping[str, Any]) -> str:
    """How many pairs of texts were judged right, where a system learns that."""
    if "pair_accuracy" not in final:
        return ""
    right, always_the_same = final["pair_accuracy"], final["pair_baseline"]
    return f"; next sentences {right:.3f} (always the same answer: {always_the_same:.3f})"


def main() -> None:
    put_section(PAGE, write_section())


if __name__ == "__main__":
    main()
