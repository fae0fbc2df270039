"""Writes the results section of the README from the newest result files.

python -m benchmarks.readme_results
"""

from pathlib import Path
from typing import Any

from benchmarks.common import put_section, require_result
from benchmarks.speed_page import count_met, describe_gpu, list_measures, write_table

README = Path(__file__).parents[1] / "README.md"
_BESIDE = (
    "Beside what a user would pick instead: above 1 ours is faster; of seconds and memory less is "
    "better. How it was measured, and why aims are missed: [docs/speed.md](docs/speed.md). Time to "
    "quality is one run of each, on one core, of different models."
)


def write_section() -> str:
    """The section as Markdown, without its markers."""
    quick = require_result("quickstart")
    sprint, hour = (require_result(f"reproduce-wiki-{name}") for name in ("sprint", "hour"))
    prepare = require_result("prepare-wiki_en")
    rows = [
        (
            f"`make quickstart`: installation {quick['install_seconds'] / 60:.1f} min, work "
            f"{quick['work_seconds'] / 60:.1f} min",
            _describe(quick["final"]),
            quick["file"],
        ),
        *(
            (
                f"`--recipe {one['recipe']}` on 24 M words of English Wikipedia, "
                f"{one['threads']} core: {one['final']['tokens']:,} tokens in "
                f"{one['final']['seconds'] / 60:.1f} min",
                _describe(one["final"]),
                one["file"],
            )
            for one in (sprint, hour)
        ),
        (
            f"`prepare` of {prepare['text_bytes'] / 1e6:.0f} MB of that text, WordPiece "
            f"{prepare['vocab_size']:,} trained on it",
            f"{prepare['seconds']:.0f} s, {prepare['megabytes_per_second']} MB/s, "
            f"{prepare['peak_resident_megabytes']} MB of memory at most",
            prepare["file"],
        ),
    ]
    environment = sprint["environment"]
    lines = [
        f"On {environment['cpu_count']} cores of an {environment['cpu']}, torch "
        f"{environment['packages']['torch']}:\n",
        "| | on held-out text | file |",
        "|---|---|---|",
        *(
            f"| {what} | {score} | [{file}](benchmarks/results/{file}) |"
            for what, score, file in rows
        ),
    ]
    measures = list_measures()
    if measures:
        lines += [
            "",
            f"{_BESIDE} {describe_gpu(measures)}{count_met(measures)}\n",
            *write_table(measures, "benchmarks/results"),
        ]
    return "\n".join(lines) + "\n"


def _describe(final: dict[str, Any]) -> str:
    return (
        f"masked accuracy {final['masked_accuracy']:.3f} (always the most frequent token: "
        f"{final['unigram_accuracy']:.3f}), loss {final['loss']:.2f} (token frequencies: "
        f"{final['unigram_loss']:.2f})"
    )


def main() -> None:
    put_section(README, write_section())


if __name__ == "__main__":
    main()
