"""Write all tables and pictures of README and docs from the newest result files.

`specification.yaml` says what each page shows.
"""

import argparse

from benchmarks.pages import read_pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pages", nargs="*", help="such as docs/speed.md [all]")


def main(arguments: argparse.Namespace) -> None:
    pages = read_pages()
    for name in arguments.pages or pages:
        pictures = pages[name].draw()
        pages[name].put_section()
        print(f"written: {', '.join([name, *pictures])}")
