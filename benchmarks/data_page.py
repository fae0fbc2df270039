"""Writes the results of docs/data.md from the newest result files.

python -m benchmarks.data_page
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import RESULTS, find_result, put_section
from benchmarks.dump_guide import VOCAB_SIZE

PAGE = Path(__file__).parents[1] / "docs" / "data.md"


def write_section(results: Path = RESULTS) -> str:
    """The section as Markdown, without its markers."""
    lines = [*_write_duplicates(results), *_write_guide(results)]
    return "\n".join(lines or ["Nothing has been measured yet."]) + "\n"


def _write_duplicates(results: Path) -> Iterator[str]:
    result = find_result("near-duplicates", results)
    if result is None:
        return
    yield "### How well near duplicates are found\n"
    yield (
        f"Copies of articles of English Wikipedia with single words replaced, planted among "
        f"{result['thresholds'][0]['documents']:,} documents "
        f"([file](../benchmarks/results/{result['file']})); similar as their 5-grams are, counted "
        "in full:\n"
    )
    yield "| threshold | bands x rows | pairs above it | found | finds above it | unplanted finds |"
    yield "|--:|--:|--:|--:|--:|--:|"
    for found in result["thresholds"]:
        bands = f"{found['bands']} x {found['rows_in_a_band']}"
        yield (
            f"| {found['threshold']} | {bands} | {found['planted_above_threshold']:,} | "
            f"{found['recall']:.1%} | {found['precision']:.1%} | {found['other_finds']:,} |"
        )
    yield "\nWhat is missed or found wrongly lies near the threshold; the file has the numbers."


def _write_guide(results: Path) -> Iterator[str]:
    result = find_result("dump-guide", results)
    if result is None:
        return
    accuracy, loss = (result["held_out"][name] for name in ("masked_accuracy", "loss"))
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in result["dropped"].items())
    yield "\n### This guide from end to end\n"
    yield (
        f"{result['pages']:,} articles of Korean Wikipedia, wrapped into a dump of "
        f"{result['dump_megabytes_packed']:.1f} MB by the benchmark, prepared in "
        f"{result['prepare_seconds']:.0f} seconds with a vocabulary of {VOCAB_SIZE:,} "
        f"(dropped or repaired: {dropped}), {result['epochs']:g} epochs of "
        f"{result['tokens_to_train_on']:,} tokens with the recipe `sprint` "
        f"([file](../benchmarks/results/{result['file']})); {accuracy['num_samples']:,} hidden "
        "tokens of other articles:\n"
    )
    yield "| | the encoder | 95 % interval | token frequencies alone |"
    yield "|---|--:|--:|--:|"
    for label, digits, found in (("masked accuracy", 3, accuracy), ("loss", 2, loss)):
        cells = (f"{found[key]:.{digits}f}" for key in ("value", "low", "high", "baseline"))
        value, low, high, alone = cells
        yield f"| {label} | {value} | {low} to {high} | {alone} |"


if __name__ == "__main__":
    put_section(PAGE, write_section())
