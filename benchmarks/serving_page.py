"""Writes the results of docs/serve.md from the newest result files.

python -m benchmarks.serving_page
"""

from pathlib import Path

from benchmarks.common import RESULTS, find_result, put_section

PAGE = Path(__file__).parents[1] / "docs" / "serve.md"


def write_section(results: Path = RESULTS) -> str:
    """The section as Markdown, without its markers."""
    load, fuzz = (find_result(name, results) for name in ("serving-load", "serving-fuzz"))
    if load is None:
        return "Nothing has been measured yet.\n"
    folder, environment = "../benchmarks/results", load["environment"]
    ratios = " and ".join(
        f"{ratio:.1f} times as many {kind}" for kind, ratio in load["batching_over_none"].items()
    )
    lines = [
        f"{load['connections']} connections for {load['seconds']:g} s over loopback, server and "
        f"clients on the same {environment['cpu_count']} cores of an {environment['cpu']} "
        f"([file]({folder}/{load['file']})). Sentences have 8 to 24 words, queries 2 to 6; "
        f"batching serves {ratios}:\n",
        "| | answers a second | p50, ms | p90 | p99 | refused (503) | other errors |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, found in load["ways"].items():
        times = " | ".join(f"{found['milliseconds'][cut]:.0f}" for cut in ("p50", "p90", "p99"))
        counts = {int(status): count for status, count in found["statuses"].items()}
        refused = counts.pop(503, 0)
        counts.pop(200, None)
        other = sum(counts.values())
        speed = f"{found['requests_per_second']:,.0f}"
        lines.append(f"| {name} | {speed} | {times} | {refused:,} | {other:,} |")
    if fuzz:
        found = "found nothing" if fuzz["nothing_found"] else "found failures"
        lines += [
            "",
            f"schemathesis with {fuzz['examples']} examples of each operation {found} "
            f"([file]({folder}/{fuzz['file']})).",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    put_section(PAGE, write_section())
