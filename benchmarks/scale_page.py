"""Works out for docs/scale.md what a preparation takes on a cluster, from what was measured.

    python -m benchmarks.scale_page

A preparation goes over its text three times: to select, to train the tokenizer, to encode. In each
pass one process, the driver, reads; all else is shared out. A pass takes as long as the slower of
the two, so a cluster is of use until the driver is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, Result, find_result, put_section

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
TERABYTE = 1e6  # megabytes
NODES, NODE_CORES = (1, 10, 100), 32
_HOUR = 3600.0
_FINGERPRINT_BYTES, _SIGNATURE_BYTES = 22, 512  # a document, at most
NOTHING = "Not measured yet: `python -m benchmarks.preparation_scale` writes the figures.\n"


class Costs(NamedTuple):
    """Seconds a megabyte on one core; of the tokenizer, seconds.

    Attributes:
        hand_out: packing what goes to other machines.
        search: finding near duplicates among all signatures.
        train: learning the vocabulary from its sample, whatever the size of the text.
    """

    hash: float
    read: float
    clean: float
    hand_out: float
    select: float
    search: float
    encode: float
    train: float


def find_costs(text: Mapping[str, Any]) -> Costs:
    """What each part of the work costs, from the steps of one text on one core."""
    size = text["megabytes"]
    steps = {name: found["1"] for name, found in text["steps"].items()}
    each = {name: found["seconds"] / size for name, found in steps.items()}
    selection = steps["selection: everything"]
    search = selection["seconds_apart"]["find_near_duplicates"] / size
    return Costs(
        hash=each["hashing"],
        read=each["reading"],
        clean=each["cleaning"],
        hand_out=steps["handing out"]["seconds_apart"]["add"] / size,
        select=max(0.0, each["selection: everything"] - each["reading"] - search),
        search=search,
        encode=max(0.0, each["encoding"] - each["cleaning"]),
        train=max(0.0, each["tokenizer"] - each["cleaning"]) * size,
    )


def estimate_machine(costs: Costs, megabytes: float, cores: int) -> float:
    """Seconds on one machine, whose driver takes its share of the cores."""

    def share(driver: float, others: float) -> float:
        return max(driver, (driver + others) / cores)

    passes = share(costs.read, costs.select) + costs.clean + share(costs.clean, costs.encode)
    return megabytes * (costs.hash + costs.search + passes) + costs.train


class Estimate(NamedTuple):
    """Hours of each pass on a cluster, and of its driver alone."""

    selecting: float
    tokenizer: float
    encoding: float
    driver: float

    @property
    def hours(self) -> float:
        return self.selecting + self.tokenizer + self.encoding


def estimate_cluster(costs: Costs, megabytes: float, cores: int) -> Estimate:
    """The passes over so much text with so many cores beside the driver."""
    once = megabytes / _HOUR
    reading = once * (costs.read + costs.hand_out)
    cleaning = once * (costs.clean + costs.hand_out)
    alone = once * (costs.hash + costs.search)
    tokenizer = once * costs.clean + costs.train / _HOUR
    return Estimate(
        selecting=alone + max(reading, once * costs.select / cores),
        tokenizer=tokenizer,
        encoding=max(cleaning, once * costs.encode / cores),
        driver=alone + reading + tokenizer + cleaning,
    )


def count_useful_cores(costs: Costs) -> int:
    """The cores beyond which every pass waits for the driver."""
    selecting = costs.select / (costs.read + costs.hand_out)
    return round(max(selecting, costs.encode / (costs.clean + costs.hand_out)))


def write_steps(texts: Sequence[Result]) -> list[str]:
    """Megabytes a second and memory of each step, as a Markdown table."""
    sizes = [f"{text['megabytes']:.0f} MB" for text in texts]
    lines = [
        f"| step | {' | '.join(f'{size}, 1 core | 2 cores | memory' for size in sizes)} |",
        f"|---|{'--:|' * 3 * len(sizes)}",
    ]
    for step in texts[0]["steps"]:
        cells = list[str]()
        for text in texts:
            found = text["steps"][step]
            rates = (f"{found[n]['megabytes_per_second']:.1f}" if n in found else "" for n in "12")
            peaks = (str(one["peak_megabytes"]) for one in found.values())
            cells += [*rates, " / ".join(peaks)]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return lines


def write_growth(texts: Sequence[Result]) -> str:
    """How time and memory of everything on one core grow with the text."""
    small, large = texts[0], texts[-1]
    before, after = (text["steps"]["everything"]["1"] for text in (small, large))
    return (
        f"{large['megabytes'] / small['megabytes']:.1f} times the text takes "
        f"{after['seconds'] / before['seconds']:.1f} times the seconds and "
        f"{after['peak_megabytes'] / before['peak_megabytes']:.2f} times the memory "
        "(everything, on one core)."
    )


def write_check(texts: Sequence[Result], costs: Costs) -> list[str]:
    """What the model says of the preparations that were measured, as a Markdown table."""
    lines = ["| text | cores | worked out | measured |", "|--:|--:|--:|--:|"]
    for text in texts:
        for cores, found in text["steps"]["everything"].items():
            worked_out = estimate_machine(costs, text["megabytes"], int(cores))
            lines.append(
                f"| {text['megabytes']:.0f} MB | {cores} | {worked_out:.0f} s "
                f"| {found['seconds']:.0f} s ({found['seconds'] / worked_out - 1:+.0%}) |"
            )
    return lines


def write_estimate(costs: Costs) -> list[str]:
    """A terabyte on 1, 10 and 100 nodes, as a Markdown table."""
    lines = [
        f"| nodes of {NODE_CORES} cores | select | tokenizer | encode | together | driver alone |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for nodes in NODES:
        found = estimate_cluster(costs, TERABYTE, nodes * NODE_CORES)
        hours = (*found[:3], found.hours, found.driver)
        lines.append(f"| {nodes} | {' | '.join(f'{h:.1f} h' for h in hours)} |")
    return lines


def write_section(results: Path = RESULTS) -> str:
    """The section of docs/scale.md as Markdown, without its markers."""
    result = find_result("preparation-scale", results)
    if result is None:
        return NOTHING
    texts = result["texts"]
    largest = texts[-1]
    costs = find_costs(largest)
    documents = largest["documents"] / largest["megabytes"] * TERABYTE
    environment = result["environment"]
    cpu = environment["cpu"].partition("(")[0].strip()
    link = f"[{environment['cpu_count']} cores, {cpu}](../benchmarks/results/{result['file']})"
    lines = [
        f"MB/s of each step alone ({link}), and MB of memory of all its processes (1 core / 2):",
        "",
        *write_steps(texts),
        "",
        write_growth(texts),
        "",
        "What the costs of the larger text on one core say of whole preparations with selection:",
        "",
        *write_check(texts, costs),
        "",
        "**On paper**, a terabyte of such text, the driver on a machine of its own:",
        "",
        *write_estimate(costs),
        "",
        f"More than {count_useful_cores(costs):,} cores are of no use: each pass then waits for "
        f"the driver. A terabyte is some {documents / 1e6:,.0f} million such documents: up to "
        f"{documents * _FINGERPRINT_BYTES / 1e9:.0f} GB in the driver for exact duplicates, "
        f"{documents * _SIGNATURE_BYTES / 1e9:.0f} GB on disk for signatures of near ones.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    put_section(PAGE, write_section())
