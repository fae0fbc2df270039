"""Write all tables and pictures of README and docs from the newest result files.

`specification.yaml` defines the content of each page.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from benchmarks.common import RESULTS, ROOT, Result, find_results
from docs.tools import pictures, table_values

IMAGES = ROOT / "docs" / "images"
SPECIFICATION = Path(__file__).with_name("specification.yaml")
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"

Block = Mapping[str, Any]
FORMATS: dict[str, Callable[[Any], str]] = {
    "M": lambda number: f"{number / 1e6:.2f} M",
    "min": lambda seconds: f"{seconds / 60:.1f}",
    "len": lambda items: str(len(items)),
    "list": lambda counts: ", ".join(f"{count:,} {what}" for what, count in counts.items()),
    "mean": lambda pair: " ± ".join(f"{x:.4f}" for x in pair if x is not None) or "none",
}


class _Template(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        show = FORMATS.get(format_spec)
        return show(value) if show else format(value, format_spec)


@dataclass(frozen=True)
class Page:
    """A page, whose blocks stand between two markers with blank lines between them."""

    path: str
    blocks: Sequence[Block]
    results: Path = RESULTS
    images: Path = IMAGES

    @property
    def file(self) -> Path:
        return ROOT / self.path

    def write_section(self) -> str:
        """Return the section as Markdown, without its markers."""
        paragraphs = ["\n".join(lines) for lines in map(self._write, self.blocks) if lines]
        return "\n\n".join(paragraphs or ["Nothing has been measured yet."]) + "\n"

    def read_section(self) -> str:
        """Return what the page has between its markers."""
        return self.file.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]

    def put_section(self) -> None:
        """Replace what the page has between its markers."""
        before, _, rest = self.file.read_text(encoding="utf-8").partition(BEGIN)
        text = before + BEGIN + self.write_section() + END + rest.partition(END)[2]
        self.file.write_text(text, encoding="utf-8")

    def draw(self) -> list[str]:
        """Draw the pictures that there are results for; return their names."""
        drawn: list[str] = []
        with pictures.drawing():
            for block in self.blocks:
                if "picture" in block and (found := self._find(block)):
                    pictures.draw(block, found, self.images)
                    drawn.append(block["picture"])
        return drawn

    def _find(self, block: Block) -> list[Result]:
        """Return the newest results that a block names, unless it wants all files of a name."""
        names = block.get("result", [])
        files = slice(None) if block.get("all_files") else slice(-1, None)
        found = [
            self._describe(result)
            for name in ([names] if isinstance(names, str) else names)
            for result in find_results(name, self.results)[files]
        ]
        return [result for result in found if result.get("ended", True)]

    def _describe(self, result: Result) -> Result:
        """Add the fields that templates share."""
        folder = "../benchmarks/results" if "/" in self.path else "benchmarks/results"
        url, environment = f"{folder}/{result['file']}", result.get("environment", {})
        cpu = environment.get("cpu", "").partition("(")[0].strip()
        hardware = result.get("device", f"{environment.get('cpu_count')} cores, {cpu}")
        return {**result, "url": url, "file_link": f"[file]({url})", "hardware": hardware}

    def _list_records(self, block: Block) -> Iterator[Mapping[str, Any]]:
        found = self._find(block)
        if not found and block.get("result"):
            return
        shared = found[0] if len(found) == 1 else {}
        each: Any = block.get("each", found or [{}])
        if "records" in block:
            each = getattr(table_values, block["records"])(*found, **block.get("arguments", {}))
        for record in shared[each] if isinstance(each, str) else each:
            yield {**shared, **record}

    def _fill(self, block: Block, templates: Iterable[str]) -> list[list[str]]:
        fill, templates = _Template().vformat, list(templates)
        return [
            [fill(one, (), record) for one in templates] for record in self._list_records(block)
        ]

    def _write(self, block: Block) -> list[str]:
        if "text" in block:
            rows = self._fill(block, [block["text"]])
            return rows[0] if rows else []
        if "picture" in block:
            picture = f"{block['picture']}.svg"
            is_drawn = (self.images / picture).exists()
            return [f"![{block['caption']}](images/{picture})"] if is_drawn else []
        if "table" in block:
            found = self._find(block)
            head, rows = getattr(table_values, block["table"])(*found) if found else ((), ())
        else:
            columns: dict[str, str] = block["columns"]
            head, groups = list(columns), block.get("rows", [block])
            cells = (self._fill(one, one.get("cells", columns.values())) for one in groups)
            rows = [row for rows in cells for row in rows]
        return _write_table(head, rows, block.get("align", "l")) if rows else []


def _write_table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return a Markdown table; the last letter of `align` is that of all further columns."""
    align += align[-1] * (len(head) - len(align))
    return [
        "|" + "".join(f" {cell} |" if cell else " |" for cell in head),
        "|" + "".join("--:|" if one == "r" else "---|" for one in align),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def read_pages(results: Path = RESULTS, images: Path = IMAGES) -> dict[str, Page]:
    """Return all pages by their paths."""
    pages = yaml.safe_load(SPECIFICATION.read_text(encoding="utf-8"))
    return {path: Page(path, blocks, results, images) for path, blocks in pages.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pages", nargs="*", help="pages such as docs/results.md [all]")


def main(arguments: argparse.Namespace) -> None:
    pages = read_pages()
    for name in arguments.pages or pages:
        pictures = pages[name].draw()
        pages[name].put_section()
        print(f"written: {', '.join([name, *pictures])}")
    from docs.tools.promises import list_promises  # which reads pages

    if stale := [promise for promise in list_promises(pages) if promise.is_stale]:
        sys.exit(
            "\n".join(["the code has changed since the files of these promises:", *map(str, stale)])
        )
