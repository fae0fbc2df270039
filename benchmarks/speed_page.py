"""Writes the table of docs/speed.md from the newest result files.

    python -m benchmarks.speed_page

A measure without a result file has no row.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median as middle
from typing import NamedTuple

from benchmarks.common import RESULTS, Result, find_result, put_section
from benchmarks.plots import IMAGES

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
_LINEAR = 1.1  # slopes up to here are called linear
PICTURES = {
    "quality": "Validation loss against time, ours and transformers' Trainer",
    "growth": "Seconds against the size of the model, of the rows and of the text",
}


class Measure(NamedTuple):
    """One row: what is measured, beside whom, what is aimed at and what was found."""

    what: str
    peer: str
    aim: str
    is_met: bool
    found: str
    result: Result


def list_measures(results: Path = RESULTS) -> list[Measure]:
    """All measures that have a result."""
    found: list[Measure] = []
    for name, describe in (
        ("training-speed-fp32", _describe_training),
        ("training-speed-bf16", _describe_training),
        ("time-to-quality", _describe_quality),
        ("collation", _describe_collation),
        ("preparation-speed", _describe_preparation),
        ("tokenizer-speed", _describe_tokenizer),
        ("start-speed", _describe_start),
        ("growth", _describe_growth),
        ("gpu-speed", _describe_gpu),
    ):
        result = find_result(name, results)
        found += describe(result) if result else []
    collation, training = (find_result(n, results) for n in ("collation", "training-speed-fp32"))
    if collation and training:
        found += _describe_share(collation, training)
    return found


def _compare(
    what: str, peer: str, aim: float, ratio: Result, result: Result, *, at_most: bool = False
) -> Measure:
    """A ratio with the least and the most of its rounds; the median decides."""
    median = ratio["median"]
    found = f"{median:.2f}x ({ratio['least']:.2f} to {ratio['most']:.2f})"
    shown = f"{'at most ' if at_most else ''}{aim:g}x"
    return Measure(what, peer, shown, median <= aim if at_most else median >= aim, found, result)


def describe_gpu(measures: list[Measure]) -> str:
    """A sentence where none of them was made on one."""
    if any(measure.result["name"] == "gpu-speed" for measure in measures):
        return ""
    return "No GPU has been at hand. "


def count_met(measures: list[Measure]) -> str:
    """``Of 31 aims 13 are met.``"""
    return f"Of {len(measures)} aims {sum(measure.is_met for measure in measures)} are met."


def _describe_training(result: Result) -> Iterator[Measure]:
    precision = result["precision"]
    aims = {"packed": {"bert": 2.2, "modernbert": 1.8}}
    aims["sentences"] = dict.fromkeys(aims["packed"], 6.0)
    ways = {"ours": "", "ours, compiled,": ", compiled"}
    padded = {"transformers": "", "transformers, padded to whole rows,": ", padded to 128"}
    for corpus, measured in result["corpora"].items():
        rows, ratios = "full rows" if corpus == "packed" else "sentences", measured["ratios"]
        for (peer, aim), (kind, padding), (ours, way) in product(
            aims[corpus].items(), padded.items(), ways.items()
        ):
            if ratio := ratios.get(f"{ours} {peer} over {kind} {peer}"):
                what = f"tokens/s in training, {rows}, the same model{way}, {precision}"
                yield _compare(what, f"Trainer, {peer}{padding}", aim, ratio, result)
        for model, (ours, way) in product(("tiny", "bert", "modernbert"), ways.items()):
            if ratio := ratios.get(f"{ours} {model} over products of {model}"):
                what = f"tokens/s in training, full rows, `{model}`{way}, {precision}"
                yield _compare(what, "its matrix products alone", 0.85, ratio, result)


def _describe_quality(result: Result) -> Iterator[Measure]:
    for peer, aim in (("bert", 30), ("modernbert", 6)):
        answer = result["answers"].get(peer)
        if answer is None:
            continue
        seconds = answer["our_seconds"]
        found = f"{answer['times_faster']:.1f}x ({seconds:.0f} s)" if seconds else "not reached"
        is_met = bool(seconds) and answer["times_faster"] >= aim
        what = f"time to loss {answer['loss']:.2f} on English Wikipedia"
        name = f"Trainer, {peer}, AdamW {answer['best_rate']:g}, after {result['minutes']:g} min"
        yield Measure(what, name, f"{aim}x", is_met, found, result)


def _describe_collation(result: Result) -> Iterator[Measure]:
    for size, measured in result["batches"].items():
        for kind in ("transformers pt", "transformers np"):  # as in `Trainer`
            ratio, what = (
                measured["ratios"][kind],
                f"tokens/s of packing, masking, collation, {size}",
            )
            yield _compare(what, f"collator of {kind}", 10, ratio, result)


def _describe_share(collation: Result, training: Result) -> Iterator[Measure]:
    """Seconds of a step's collation over those of the step, both of 16 rows."""
    batch = collation["batches"]["16 rows"]["tokens_per_second"]["ours"]
    for model in ("bert", "modernbert"):
        step = training["corpora"]["packed"]["tokens_per_second"][f"ours {model}"]
        share = middle(step) / middle(batch)
        what = "time of packing, masking and collation, 16 rows"
        peer, found = f"a step of `{model}`", f"{share:.2%}"
        yield Measure(what, peer, "below 1 %", share < 0.01, found, collation)


def _describe_preparation(result: Result) -> Iterator[Measure]:
    yield _compare("MB/s from text to shards", "run_mlm.py", 3, result["ratio"], result)
    memory = result["ratio_of_memory"]
    yield _compare("memory of that", "run_mlm.py", 0.33, memory, result, at_most=True)


def _describe_tokenizer(result: Result) -> Iterator[Measure]:
    what = f"MB/s of tokenizer training, {result['megabytes']:.0f} MB"
    yield _compare(what, "`tokenizers` alone", 0.9, result["ratio"], result)


def _describe_start(result: Result) -> Iterator[Measure]:
    ratio = result["ours_over_theirs"]
    yield _compare("seconds to the first step", "Trainer", 0.5, ratio, result, at_most=True)


def _describe_growth(result: Result) -> Iterator[Measure]:
    slopes = {name: f"{grown['slope']:.2f}" for name, grown in result["grown"].items()}
    found = ", ".join(f"{name.replace('_', ' ')} {slope}" for name, slope in slopes.items())
    is_met = all(grown["slope"] <= _LINEAR for grown in result["grown"].values())
    yield Measure("growth of time with work", "linear", "slope 1", is_met, found, result)


def _describe_gpu(result: Result) -> Iterator[Measure]:
    for model in result["models"]:
        what = f"`{model['recipe']}`, rows of {model['row_length']}, on {result['device']}"
        yield _compare(what, "Trainer, ModernBERT", 2, model["ratio"], result)
        utilisation = model["model_flops_utilisation"]
        aim = {"base": 0.5, "small": 0.25}.get(model["recipe"])
        if utilisation and aim:
            ours = utilisation["ours"]
            mfu = f"{ours:.1%} (peer: {utilisation['transformers']:.1%})"
            peak = "the card's bf16 peak"
            yield Measure("MFU of that", peak, f"{aim:.0%}", ours >= aim, mfu, result)


def write_table(measures: list[Measure], results_folder: str) -> list[str]:
    """A Markdown table with a link to the file of each row."""
    lines = ["| measure | beside | aim | found | file |", "|---|---|---|---|---|"]
    for what, peer, aim, is_met, found, result in measures:
        aim = f"{aim}: {'met' if is_met else 'missed'}"
        environment = result["environment"]
        cpu = environment["cpu"].partition("(")[0].strip()
        hardware = f"{environment['cpu_count']} cores, {cpu}"
        link = f"[{hardware}]({results_folder}/{result['file']})"
        lines.append(f"| {what} | {peer} | {aim} | {found} | {link} |")
    return lines


def write_profile(profile: Result, results_folder: str) -> list[str]:
    """What share of a step each kind of operator takes, as a Markdown table."""
    steps: dict[str, dict[str, float]] = profile["milliseconds"]
    kinds = dict.fromkeys(kind for times in steps.values() for kind in times)
    lines = [
        f"Where a step in fp32 spends its time ([file]({results_folder}/{profile['file']})):",
        "",
        f"| | {' | '.join(f'`{name}`' for name in steps)} |",
        f"|---|{'--:|' * len(steps)}",
    ]
    for kind in kinds:
        shares = [times.get(kind, 0.0) / sum(times.values()) for times in steps.values()]
        lines.append(f"| {kind} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    return lines


def write_section(results: Path = RESULTS, images: Path = IMAGES) -> str:
    """The section of docs/speed.md as Markdown, without its markers."""
    measures = list_measures(results)
    if not measures:
        return "Nothing has been measured yet.\n"
    lines = [
        f"{describe_gpu(measures)}{count_met(measures)}",
        "",
        *write_table(measures, "../benchmarks/results"),
    ]
    for name, text in PICTURES.items():
        if (images / f"{name}.svg").exists():
            lines += ["", f"![{text}](images/{name}.svg)"]
    if bench := find_result("bench", results):
        link = f"[{bench['minutes']:.0f} minutes](../benchmarks/results/{bench['file']})"
        lines += ["", f"`make bench`, which measures all of it but a GPU, took {link}."]
    if profile := find_result("step-profile", results):
        lines += ["", *write_profile(profile, "../benchmarks/results")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    put_section(PAGE, write_section())
