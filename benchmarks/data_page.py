"""Writes the results of docs/data.md from the newest result files.

python -m benchmarks.data_page
"""

from pathlib import Path

from benchmarks.common import RESULTS, find_result, put_section

PAGE = Path(__file__).parents[1] / "docs" / "data.md"


def write_section(results: Path = RESULTS) -> str:
    """The section as Markdown, without its markers."""
    result = find_result("near-duplicates", results)
    if result is None:
        return "Nothing has been measured yet.\n"
    lines = [
        f"Copies of articles of English Wikipedia with single words replaced, planted among "
        f"{result['thresholds'][0]['documents']:,} documents "
        f"([file](../benchmarks/results/{result['file']})); similar as their 5-grams are, counted "
        "in full:\n",
        "| threshold | bands x rows | pairs above it | found | finds above it | unplanted finds |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for found in result["thresholds"]:
        bands = f"{found['bands']} x {found['rows_in_a_band']}"
        lines.append(
            f"| {found['threshold']} | {bands} | {found['planted_above_threshold']:,} | "
            f"{found['recall']:.1%} | {found['precision']:.1%} | {found['other_finds']:,} |"
        )
    lines += [
        "",
        "What is missed or found wrongly lies near the threshold; the file has the numbers.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    put_section(PAGE, write_section())
