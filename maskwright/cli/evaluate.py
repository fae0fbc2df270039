"""``maskwright evaluate``: how good a model is, with intervals and what no learning would score."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.cli.evaluation_flags import (
    add_text_flags,
    check_suites,
    check_text_flags,
)
from maskwright.cli.flags import Parser
from maskwright.console import say_json, tell
from maskwright.errors import InputError
from maskwright.files import check_new_file
from maskwright.runs.find_model import HELP, find_masked_model, find_model_folder

_EPILOG = """suites:
  mlm     masked language modelling on pinned masks: loss, perplexity, bits per character,
          accuracies, whole words, by frequency, calibration
  fill    one token of each sentence hidden behind [MASK]
  pll     pseudo-perplexity of sentences
  blimp   minimal pairs: is the good sentence likelier? Needs --blimp
  glue    stands alone: fine-tunes on every task of the benchmark that --data DIR holds

examples:
  maskwright evaluate runs/NAME
  maskwright evaluate runs/NAME --suite mlm,fill --fast
  maskwright evaluate runs/NAME --details       (by frequency, by phenomenon, …)
  maskwright evaluate runs/NAME/model --suite mlm --data data/NAME --out evaluation.json
  maskwright evaluate runs/NAME --suite blimp --blimp blimp/data
  maskwright evaluate runs/NAME --suite glue --data glue/
  maskwright evaluate hf:google-bert/bert-base-uncased --data novel.txt --json

The results of a run go into its evaluation.json (those of glue into --out alone); those of other
suites and other data that it has of the same model stay. What each score is: docs/evaluation.md.
"""


def build_parser() -> Parser:
    """The command line of ``maskwright evaluate``."""
    parser = Parser("evaluate", "Score a model.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--suite", default="mlm,fill", help="separated by commas [mlm,fill]")
    parser.add_argument(
        "--blimp", metavar="DIR", help="minimal pairs as JSON lines, for the suite blimp"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, as JSON")
    parser.add_argument("--details", action="store_true", help="show all scores of each suite")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    rows = "the run's, else 128"
    add_text_flags(
        parser, "the data of the run", rows, "an eighth or less of the text; of glue one epoch"
    )
    return parser


def evaluate(
    folder: str | Path,
    *,
    suite: str | Sequence[str] = ("mlm", "fill"),
    data: str | Path | Sequence[str | Path] = (),
    blimp: str | Path | None = None,
    out: str | Path | None = None,
    fast: bool = False,
    seq_length: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Score a model; the Python twin of ``maskwright evaluate --json``::

        found = evaluate("runs/mine", suite="mlm")
        scores = {score["name"]: score["value"] for score in found["suites"][0]["scores"]}

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        suite: ``mlm``, ``fill``, ``pll``, ``blimp``; or ``glue`` alone.
        data: a prepared folder or its URL, or text files; default: the held-out text of the run.
        blimp: the folder of minimal pairs, for the suite ``blimp``.
        out: a JSON file to write the results to. Those of a run go into its ``evaluation.json``,
            too.
        fast: scores an eighth of the text or less; of ``glue`` one epoch.
        seq_length: tokens of a row; default: the run's, else 128.
        device: where to compute, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Returns:
        ``{"format", "model", "suites": [{"suite", "scores": [{"name", "value", "low", "high", …},
        …], …}, …]}``, as in ``evaluation.json``; of ``glue`` the results of each task by name.

    Raises:
        MaskwrightError: anything wrong with the input, as one line.
    """
    names = suite if isinstance(suite, str) else ",".join(suite)
    options = {"blimp": blimp, "out": out, "fast": fast, "seq_length": seq_length}
    parser = build_parser()
    arguments = parser.fill({}, folder=folder, suite=names, data=data, device=device, **options)
    found, _ = _run(arguments)
    return found


def _check_alone(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise InputError("--suite glue stands alone: score the others by themselves")
    for flag in ("blimp", "seq_length"):
        if getattr(arguments, flag) is not None:
            shown = flag.replace("_", "-")
            raise InputError(f"--{shown} is nothing to --suite glue: leave it out")
    if arguments.details:
        raise InputError("--details is nothing to --suite glue, which has one table: leave it out")


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    found, show = _run(arguments)
    if arguments.json:
        say_json(found, indent=2)
    else:
        show()
    return 0


def _run(arguments: argparse.Namespace) -> tuple[dict[str, Any], Callable[[], None]]:
    """Return all results, and what shows them as tables."""
    check_text_flags(arguments)
    if arguments.out is not None:
        check_new_file(arguments.out)
    names = tuple(name.strip() for name in arguments.suite.split(",") if name.strip())
    if "glue" in names:
        _check_alone(arguments, names)
        return _run_glue(arguments)
    suites = check_suites(names)
    folder = find_masked_model(arguments.folder, tell)
    # torch is imported from here on
    from maskwright.cli.tables import print_results
    from maskwright.evaluation.held_out_text import describe_cut
    from maskwright.evaluation.run import Evaluation

    evaluation = Evaluation(arguments.folder, folder, arguments.device)
    request = evaluation.make_request(
        suites,
        arguments.data,
        arguments.seq_length,
        arguments.blimp,
        is_fast=arguments.fast,
    )
    if request.text is not None and (line := describe_cut(request.text.data)):
        tell(line)
    results = evaluation.run_suites(suites, request, tell)
    paths = evaluation.write(results, arguments.out)
    facts, in_detail = evaluation.model_facts, arguments.details
    return evaluation.describe(results), lambda: print_results(
        facts, results, paths, in_detail=in_detail
    )


def _run_glue(arguments: argparse.Namespace) -> tuple[dict[str, Any], Callable[[], None]]:
    folder = find_model_folder(arguments.folder)
    from maskwright.cli.tables import print_rows
    from maskwright.finetuning.glue import COLUMNS, evaluate_glue, list_rows

    results = evaluate_glue(
        folder,
        arguments.data,
        arguments.device,
        arguments.out,
        is_fast=arguments.fast,
        tell=tell,
    )
    return results, lambda: print_rows(COLUMNS, list_rows(results), num_names=2)
