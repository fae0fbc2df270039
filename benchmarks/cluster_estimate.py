"""What a preparation takes on a cluster, estimated from the steps that were measured.

A preparation passes over its text three times: to select, to train the tokenizer, to encode. In
each pass one process, the driver, reads; all else is shared out. A pass takes as long as the slower
of the two, so a cluster helps until the driver is the slower one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

_HOUR = 3600.0


class Costs(NamedTuple):
    """Seconds a megabyte on one core; of the tokenizer, seconds.

    Attributes:
        hand_out: packing what goes to other machines.
        search: finding near duplicates among all signatures.
        train: training the vocabulary on its sample, whatever the size of the text.
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
    """Return what each part of the work costs, from the steps of one text on one core."""
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
    """Return the seconds on one machine, whose driver takes its share of the cores."""

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
    """Return the hours of the passes with these cores beside the driver."""
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
    """Return the number of cores beyond which every pass waits for the driver."""
    selecting = costs.select / (costs.read + costs.hand_out)
    return round(max(selecting, costs.encode / (costs.clean + costs.hand_out)))
