"""Writes the table of docs/reliability.md from the newest result files.

python -m benchmarks.reliability_table
"""

from pathlib import Path
from typing import NamedTuple

from benchmarks.common import put_section, require_result

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


class Promise(NamedTuple):
    """One row: what is promised, the tests of the suite, the benchmark, what it found."""

    promise: str
    tests: str
    command: str
    figure: str
    file: str


def list_promises() -> list[Promise]:
    """All promises with the newest figures."""
    return [
        *_promise_ranks(),
        *_promise_crashes(),
        _promise_resume_time(),
        _promise_order(),
        _promise_memory(),
        _promise_fuzz(),
    ]


def _promise_ranks() -> list[Promise]:
    losses = require_result("ranks-losses")
    kills = require_result("ranks-kills")
    fp32, bf16 = (
        [way["greatest_difference"] for way in losses["ways"] if way["precision"] == precision]
        for precision in ("fp32", "bf16")
    )
    num_kills = sum(run["kills"] for run in kills["runs"])
    same = sum(run["same_bits"] for run in kills["runs"])
    return [
        Promise(
            "One loss at any number of ranks, with DDP, FSDP2 and micro-batches",
            "tests/distributed/test_training.py",
            "ranks losses",
            f"{len(fp32)} ways to split a batch, 1 to 4 ranks; greatest difference of a loss "
            f"in the first {_describe_growth(fp32)} in fp32, {_describe_growth(bf16)} in bf16",
            losses["file"],
        ),
        Promise(
            "A killed rank comes back, and the run ends with the same bits",
            "tests/distributed/test_torchrun.py",
            "ranks kills",
            f"{num_kills} ranks killed under torchrun; {same} of {len(kills['runs'])} runs (DDP, "
            "FSDP2) end with the bits of an undisturbed one",
            kills["file"],
        ),
    ]


def _describe_growth(ways: list[dict[str, float]]) -> str:
    """Return the greatest difference after each number of steps that was measured."""
    return ", ".join(f"{steps} steps {max(way[steps] for way in ways):.1e}" for steps in ways[0])


def _promise_crashes() -> list[Promise]:
    result = require_result("crash-test")
    run, preparation = result["pretrain"], result["prepare"]
    return [
        Promise(
            "A killed run ends with the same bits",
            "tests/reliability/test_kills.py",
            "crash_test",
            f"{run['kills']} kills, {run['kills_inside_checkpoint_writing']} inside checkpoint "
            f"writing: {run['differences']} differences, "
            f"{run['unreadable_checkpoints']} unreadable checkpoints",
            result["file"],
        ),
        Promise(
            "A killed preparation ends with the same files",
            "tests/reliability/test_kills.py",
            "crash_test",
            f"{preparation['kills']} kills: {preparation['differences']} differences",
            result["file"],
        ),
        Promise(
            "SIGTERM and SIGINT: checkpoint and exit within 10 s",
            "tests/reliability/test_kills.py, tests/cli/test_process.py",
            "crash_test",
            "; ".join(
                f"{name} {run[name]['stops']} times: at most {run[name]['longest_seconds']} s"
                for name in ("SIGTERM", "SIGINT")
            ),
            result["file"],
        ),
    ]


def _promise_resume_time() -> Promise:
    result = require_result("resume-time")
    near, far = result["near"], result["far"]
    return Promise(
        "Resuming takes as long at any step",
        "tests/data/test_exactness.py",
        "resume_time",
        f"to the first line of metrics, median of {result['rounds']}: at step {near['step']:,} "
        f"{near['median_seconds']} s, at row {far['row']:,} {far['median_seconds']} s",
        result["file"],
    )


def _promise_order() -> Promise:
    result = require_result("order-quality")
    trials = result["large"]
    smallest = min(trial["smallest_p_value"] for trial in trials)
    return Promise(
        "The computed order looks like a random one",
        "tests/data/test_permutation_quality.py",
        "order_quality",
        f"{sum(trial['statistics'] for trial in trials)} statistics of up to "
        f"{max(trial['elements'] for trial in trials):.0e} elements: smallest p-value {smallest:g}",
        result["file"],
    )


def _promise_memory() -> Promise:
    result = require_result("memory")
    sizes = [corpus["text_megabytes"] for corpus in result["corpora"]]
    peaks = {
        command: [corpus[command]["peak_resident_megabytes"] for corpus in result["corpora"]]
        for command in ("prepare", "pretrain")
    }
    return Promise(
        "Memory does not grow with the text",
        "tests/reliability/test_memory.py",
        "memory",
        f"with {' and '.join(map(str, sizes))} MB of text: "
        + "; ".join(f"{name} {' and '.join(map(str, mb))} MB" for name, mb in peaks.items()),
        result["file"],
    )


def _promise_fuzz() -> Promise:
    result = require_result("fuzz")
    return Promise(
        "No input crashes it, fills the memory or leads out of its folder",
        "tests/hostile",
        "fuzz",
        f"{result['inputs']:,} inputs in {result['minutes']:.0f} minutes, for "
        f"{len(result['targets'])} readers: {result['crashes']} crashes",
        result["file"],
    )


def write_table() -> str:
    """The table as Markdown, without its markers."""
    lines = ["| promise | tests | benchmark | figure |", "|---|---|---|---|"]
    for promise, tests, command, figure, file in list_promises():
        link = f"[{figure}](../benchmarks/results/{file})"
        tests = ", ".join(f"`{name}`" for name in tests.split(", "))
        lines.append(f"| {promise} | {tests} | `python -m benchmarks.{command}` | {link} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    put_section(PAGE, write_table())


if __name__ == "__main__":
    main()
