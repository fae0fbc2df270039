"""Finish the documentation that zensical built: formulas, links to repository files, tables.

    zensical build --clean && python -m docs.tools site site

In the repository a link to ``../maskwright/files.py`` works, and ``\\|`` in the code of a table is
a bar. On the site a link to a file of the repository points to a page with its text,
``source/PATH.html``; ``\\|`` in code becomes ``|``; formulas become MathML, which browsers render
without a script. The exit code is 1 if any link of the site is broken.
"""

import argparse
import html
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from latex2mathml.converter import convert

from benchmarks.common import ROOT

SOURCES = "source"  # the folder of the site that holds repository files
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_LINK = re.compile(r'(?P<name>\b(?:href|src))="(?P<target>[^"]*)"')
_CODE = re.compile(r"<code>[^<]*</code>")
_ANCHOR = re.compile(r'\bid="([^"]*)"')
_PRE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 2rem auto; max-width: 110ch; padding: 0 1rem; font: 1rem system-ui, sans-serif; }}
pre {{ overflow-x: auto; font: 0.85rem/1.5 ui-monospace, monospace; }}
</style>
</head>
<body>
<p><a href="{index}">maskwright: documentation</a></p>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def finish_site(site: Path, root: Path = ROOT, docs: Path | None = None) -> None:
    """Rewrite all pages of a built site in place.

    Args:
        site: the folder that zensical wrote.
        root: the repository.
        docs: the folder of the pages' sources; default: ``docs`` of the repository.
    """
    docs = docs or root / "docs"
    sources: set[Path] = set()
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        text = _CODE.sub(lambda found: found[0].replace("\\|", "|"), text)
        text = _FORMULA.sub(lambda found: render_formula(found[2]), text)
        text = _lead_inside(text, page, site, root, docs, sources)
        page.write_text(text, encoding="utf-8")
    for source in sorted(sources):
        _write_source(source, site, root)


def render_formula(formula: str) -> str:
    """Return a formula of LaTeX, between its delimiters and escaped for HTML, as MathML."""
    latex = html.unescape(formula).strip()
    display = "block" if latex.startswith("\\[") else "inline"
    return convert(latex[2:-2], display=display)


def _lead_inside(
    text: str, page: Path, site: Path, root: Path, docs: Path, sources: set[Path]
) -> str:
    """Lead links to files of the repository to their pages, and add the files to `sources`."""
    written_in = docs / page.relative_to(site).parent

    def replace(found: re.Match[str]) -> str:
        target = _split_local(found["target"])
        source = _find_source(Path(os.path.normpath(written_in / target[0]))) if target else docs
        if source.is_relative_to(docs) or not source.is_relative_to(root) or not source.exists():
            return found[0]
        sources.add(source)
        link = os.path.relpath(_name_page(source, site, root), page.parent)
        return f'{found["name"]}="{html.escape(link)}"'

    return _LINK.sub(replace, text)


def _find_source(target: Path) -> Path:
    """Return the file of a link; zensical takes Markdown outside of docs for pages, as .html."""
    if target.suffix != ".html" or target.exists():
        return target
    found = target.with_name("README.md") if target.name == "index.html" else target
    return found.with_suffix(".md")


def _split_local(target: str) -> tuple[str, str] | None:
    """Return path and anchor of a link to a file; None for one to another host."""
    parts = urlsplit(html.unescape(target))
    if parts.scheme or parts.netloc:
        return None
    return unquote(parts.path), unquote(parts.fragment)


def _name_page(source: Path, site: Path, root: Path) -> Path:
    name = "index.html" if source.is_dir() else f"{source.name}.html"
    folder = source if source.is_dir() else source.parent
    return site / SOURCES / folder.relative_to(root) / name


def _write_source(source: Path, site: Path, root: Path) -> None:
    """Write the page of a repository file: its text; of a folder, the names in it."""
    page, title = _name_page(source, site, root), source.relative_to(root).as_posix()
    if source.is_dir():
        names = sorted(path.name for path in source.iterdir() if not path.name.startswith("__"))
        body = "<ul>\n" + "".join(f"<li>{html.escape(name)}</li>\n" for name in names) + "</ul>"
    else:
        body = f"<pre>{html.escape(source.read_text(encoding='utf-8'))}</pre>"
    index = os.path.relpath(site / "index.html", page.parent)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_PAGE.format(title=html.escape(title), index=index, body=body), "utf-8")


def list_broken(site: Path) -> Iterator[str]:
    """Yield a line for each link of a built site to a file or an anchor that is not there."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(site.rglob("*.html"))}
    anchors = {page: set(_ANCHOR.findall(text)) for page, text in pages.items()}
    for page, text in pages.items():
        if page.name == "404.html":  # its links hold at the root of a host
            continue
        for found in _LINK.finditer(_PRE.sub("", text)):
            local = _split_local(found["target"])
            if local is None:
                continue
            path = Path(os.path.normpath(page.parent / local[0])) if local[0] else page
            path = path / "index.html" if path.is_dir() else path
            is_there = path.is_relative_to(site) and path.is_file()
            if not is_there or (local[1] and path in anchors and local[1] not in anchors[path]):
                yield f"{page.relative_to(site)}: {found['target']}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", type=Path, help="folder that zensical wrote")


def main(arguments: argparse.Namespace) -> None:
    site = arguments.site.resolve()
    shutil.rmtree(site / "tools", ignore_errors=True)  # these programs, which zensical copies
    finish_site(site)
    broken = list(list_broken(site))
    print("\n".join(broken), file=sys.stderr, end="\n" * bool(broken))
    sys.exit(1 if broken else 0)
