"""A grid of settings of a recipe, at equal wall-clock on English Wikipedia.

    python -m benchmarks.sweep --runs runs/sweep --data DATA --minutes 3 \\
        --vary optim.muon_learning_rate 0.01 0.02 0.04 --vary train.batch_tokens 1024 2048
    python -m benchmarks.sweep … --points 10    # so many of the grid, drawn, and not all

Every combination of the values is a point. `RUNS/sweep.jsonl` gets a line for each run that has
ended, and more of them when run again with other values (`benchmarks.trials` says what is not run
twice). The result file holds all lines. Printed at the end, best first.
"""

import argparse
import itertools
import json
import random
from pathlib import Path
from typing import Any

from benchmarks.common import write_result
from benchmarks.trials import Trial, add_arguments, open_bench

Point = tuple[tuple[str, str], ...]


def list_points(axes: list[list[str]], count: int | None) -> list[Point]:
    """All combinations, or so many of them, always the same.

    Args:
        axes: a field and the values to try, each.
    """
    values = [[(field, value) for value in tried] for field, *tried in axes]
    points = list(itertools.product(*values))
    if count is None or count >= len(points):
        return points
    return random.Random(0).sample(points, count)


def name_point(point: Point) -> str:
    """``optim.learning_rate=0.02,train.batch_tokens=2048``: a name for a run."""
    return ",".join(f"{field}={value}" for field, value in point)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What has ended so far."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--vary", nargs="+", action="append", required=True, metavar=("FIELD", "VALUE"),
        help="a field of the configuration and the values to try",
    )  # fmt: skip
    parser.add_argument("--points", type=int, help="how many of the grid [all]")
    add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    bench = open_bench(arguments)
    lines_file = bench.runs / "sweep.jsonl"
    points = {name_point(p): p for p in list_points(arguments.vary, arguments.points)}
    trials = [
        Trial(name, seed, tuple(f"--{field}={value}" for field, value in point))
        for seed in arguments.seeds
        for name, point in points.items()
    ]
    for trial in bench.run_all(trials):
        line = {"settings": dict(points[trial.name]), "seed": trial.seed, **bench.conditions}
        if any(line.items() <= known.items() for known in read_lines(lines_file)):
            continue
        with lines_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, **(bench.read(trial) or {})}) + "\n")
    found = sorted(read_lines(lines_file), key=lambda line: line["loss"])
    write_result(f"sweep-{bench.runs.name}", {"runs": found})
    for line in found:
        settings = " ".join(f"{field}={value}" for field, value in line["settings"].items())
        print(f"{line['loss']:.4f}  seed {line['seed']}  {settings}")


if __name__ == "__main__":
    main()
