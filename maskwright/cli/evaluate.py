"""``maskwright evaluate`` and ``compare``: scores of a model, or of several side by side."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_text_flags
from maskwright.console import Console, make_console, print_table, say, say_json
from maskwright.errors import InputError
from maskwright.evaluation.difference_tables import tabulate_comparison
from maskwright.evaluation.suites import GLUE_HELP, GLUE_SUITE, SUITES, load_suite, parse_names
from maskwright.finetuning.config import GLUE_TASKS
from maskwright.finetuning.metrics import get_judged, show_mean
from maskwright.formatting import count_noun, show_number, show_score
from maskwright.provenance import show_computation
from maskwright.runs.evaluation_file import RESULTS_NAME
from maskwright.runs.find_model import HELP
from maskwright.runs.run_directory import find_run
from maskwright.sweeping.experiment import is_experiment, read_experiment
from maskwright.sweeping.results import Experiment, tabulate_experiment
from maskwright.train.config import FixedPrecision

if TYPE_CHECKING:
    from maskwright.finetuning.glue import GlueResults
    from maskwright.report.tables import ResultTable
    from maskwright.runs.evaluation_file import EvaluationResult, ScoreRecord, SuiteRecord

_EXAMPLES = """
examples:
  maskwright evaluate runs/NAME
  maskwright evaluate runs/NAME --suite mlm,fill --fast
  maskwright evaluate runs/NAME --details       (by frequency, by phenomenon, …)
  maskwright evaluate runs/NAME/model --suite mlm --data data/NAME --out evaluation.json
  maskwright evaluate runs/NAME --suite blimp --blimp blimp/data
  maskwright evaluate runs/NAME --suite glue --data glue/
  maskwright evaluate hf:google-bert/bert-base-uncased --data novel.txt --json

The results of a run are written to its evaluation.json (those of glue to --out alone); earlier
ones of the same model on other suites and other data stay. Every score: docs/evaluation.md.
"""
_GLUE_TITLES = ("task", "metric", "majority", "bag of words", "this model", "minutes")
_EVALUATE_TITLES = ("score", "value", "95 % interval", "baseline", "of")


def evaluate_parser() -> Parser:
    helps = {name: text for name, (_, text) in SUITES.items()} | {GLUE_SUITE: GLUE_HELP}
    lines = ["suites:"]
    for name, text in helps.items():
        lines.append(f"  {name:<7} " + text.replace("\n", "\n" + 10 * " "))
    parser = Parser("evaluate", "Score a model.", "\n".join([*lines, _EXAMPLES]))
    add = parser.add_argument
    add("folder", help=HELP)
    add("--suite", default="mlm,fill", help="separated by commas [mlm,fill]")
    add("--blimp", metavar="DIR", help="minimal pairs as JSON lines, for the suite blimp")
    add("--babylm", metavar="DIR", help="write the choices of blimp there, for a BabyLM submission")
    choices = "write which minimal pairs of blimp are right, by paradigm, as JSON"
    add("--choices", type=Path, metavar="FILE", help=choices)
    add("--rerank", metavar="MODEL", help="rank the documents of retrieval again by this model")
    poolings = "of the tokens' vectors, for retrieval and sts [the model's, or mean]"
    add("--pooling", choices=("mean", "cls"), help=poolings)
    kinds = get_args(FixedPrecision)
    precision = "of the matrix products of blimp; bf16 is faster with bf16 units [fp32]"
    add("--precision", choices=kinds, default="fp32", help=precision)
    add("--out", type=Path, metavar="FILE", help="write the results there, as JSON")
    add("--details", action="store_true", help="show all scores of each suite")
    add("--json", action="store_true", help="print one JSON object and no table")
    rows = "the run's, else 128"
    add_text_flags(
        parser, "the data of the run", rows, "an eighth or less of the text; of glue one epoch"
    )
    return parser


def evaluate(argv: Sequence[str]) -> int:
    given = vars(evaluate_parser().parse(argv))
    as_json, in_detail = given.pop("json"), given.pop("details")
    is_glue = parse_names(given["suite"]) == (GLUE_SUITE,)
    if is_glue and in_detail:
        raise InputError("--details has no effect with --suite glue. Remove it.")
    results: Any = maskwright.evaluate(**given)
    if as_json:
        say_json(results)
    elif is_glue:
        print_table(make_console(), _GLUE_TITLES, _list_tasks(results), num_names=2)
    else:
        run = find_run(given["folder"])
        written = run / RESULTS_NAME if run else None
        _print_results(results, in_detail, [path for path in (written, given["out"]) if path])
    return 0


def _list_tasks(results: "dict[str, GlueResults]") -> list[list[str]]:
    rows: list[list[str]] = []
    for name, found in results.items():
        metric, judged = found["deciding_metric"], get_judged(found)
        baselines = [show_score(scores[metric]) for scores in judged["baselines"].values()]
        score = show_mean(judged["scores"][metric])
        rows.append([GLUE_TASKS[name].folder, metric, *baselines, score, f"{found['minutes']:.1f}"])
    return rows


def _print_results(results: "EvaluationResult", in_detail: bool, paths: list[Path]) -> None:
    """Print a table for each suite with all of its scores, or a short one for all suites."""
    console, model = make_console(), results["model"]
    size = f"{model['num_parameters']:,} parameters"
    console.print(f"[bold]{escape(model['name'])}[/bold]  {size}  {model['sha256'][:12]}\n")
    if in_detail:
        for suite in results["suites"]:
            part = "  (--fast: a part of it)" if suite["settings"]["fast"] else ""
            title = f"{escape(suite['data']['name'])}{part}  {_show_computation([suite])}"
            console.print(f"[bold]{suite['suite']}[/bold]  {title}")
            rows = [(score["name"], *_show_score(score)) for score in suite["scores"]]
            print_table(console, _EVALUATE_TITLES, rows)
            console.print()
    else:
        _print_summary(results["suites"], console)
    for suite in results["suites"]:
        if left_out := suite["data"].get("num_left_out"):
            verb = "is" if left_out == 1 else "are"
            console.print(
                f"{count_noun(left_out, 'sentence')} {verb} longer than the model and left out"
            )
    for path in paths:
        console.print(f"all scores are in {escape(str(path))}")


def _print_summary(suites: "Sequence[SuiteRecord]", console: Console) -> None:
    named = {
        f"{suite['suite']}/{score['name'].removeprefix(suite['suite'] + '/')}": score
        for suite in suites
        for score in suite["scores"]
    }
    headlines = [name for suite in suites for name in load_suite(suite["suite"]).headlines]
    rows = [(name, *_show_score(named[name])) for name in headlines if name in named]
    print_table(console, _EVALUATE_TITLES, rows)
    names = dict.fromkeys(suite["data"]["name"] for suite in suites)
    fast = [suite["suite"] for suite in suites if suite["settings"]["fast"]]
    part = f" (--fast: a part of it in {', '.join(fast)})" if fast else ""
    console.print(f"on {escape(' and '.join(names))}{part}, {_show_computation(suites)}")
    if len(named) > len(rows):
        console.print(f"--details shows {len(named) - len(rows):,} more")


def _show_computation(suites: "Sequence[SuiteRecord]") -> str:
    found = dict.fromkeys(show_computation(suite["computation"]) for suite in suites)
    return f"computed on {escape(' and '.join(found))}"


def _show_score(score: "ScoreRecord") -> tuple[str, str, str, str]:
    """Return value, interval, baseline and number of samples as they are shown."""
    low, high, baseline = score["low"], score["high"], score["baseline"]
    known = low is not None and high is not None
    return (
        show_number(score["value"]),
        f"{show_number(low)} to {show_number(high)}" if known else "",
        "" if baseline is None else show_number(baseline),
        f"{score['num_samples']:,}",
    )


_COMPARE_HELP = """examples:
  maskwright compare runs/A runs/B
  maskwright compare runs/A runs/B runs/C --out comparison
  maskwright compare runs/A hf:google-bert/bert-base-uncased --data novel.txt
  maskwright compare runs/A-* --against runs/B-*        (several seeds of two settings)
  maskwright compare runs/rates                         (an experiment of maskwright sweep)

All models are scored on the same pinned masks; the differences from the first one come with 95 %
intervals of a bootstrap over rows that draws the same rows for both. Models of different tokenizers
are compared by bits per character, on text files: give --data. With --against, intervals are those
of the mean difference over seeds, paired by seed if both groups have the same seeds. One score is
primary: choose it before you look. All others are exploratory: of many scores some differ by
chance, so their p-values are adjusted (Holm). --out gets comparison.json, the tables as
comparison.html, and curves.png and curves.svg: loss and accuracy on [MASK] against steps, tokens
and minutes, with one color and a band for each group.
"""


def print_results(tables: "Sequence[ResultTable]") -> None:
    """Print tables with their captions."""
    console = make_console()
    for table in tables:
        console.print(f"[bold]{escape(table.title)}[/bold]  {escape(table.note)}".rstrip())
        print_table(console, table.titles, table.rows)
        console.print(escape(f"{table.below}\n" if table.below else ""))


def compare_parser() -> Parser:
    parser = Parser("compare", "Put runs side by side.", _COMPARE_HELP)
    add = parser.add_argument
    add("runs", nargs="+", help="run directories, model folders, or hf:NAME")
    group = "a second group of runs: compare the means of the groups over their seeds"
    add("--against", nargs="+", default=[], metavar="RUN", help=group)
    primary = "the score that the comparison is about [loss, or bits per character]"
    add("--primary", metavar="SCORE", help=primary)
    add("--out", type=Path, metavar="DIR", help="write comparison, page and plots there")
    rows = "the shortest of the runs"
    add_text_flags(parser, "the data of the first run", rows, "an eighth of the text")
    return parser


def _show_experiment(arguments: Namespace) -> int:
    """Print the comparison of the arms of an experiment, from the scores of its runs."""
    for name in ("against", "data", "out", "fast", "seq_length", "device"):
        if getattr(arguments, name):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} has no effect with an experiment. Remove it.")
    print_experiment(read_experiment(Path(arguments.runs[0]), arguments.primary))
    return 0


def print_experiment(found: Experiment) -> None:
    """Print the tables of an experiment and what may be claimed."""
    print_results(tabulate_experiment(found))
    for claim in found["claims"]:
        say(f"{claim}\n")


def compare(argv: Sequence[str]) -> int:
    arguments = compare_parser().parse(argv)
    if len(arguments.runs) == 1 and is_experiment(Path(arguments.runs[0])):
        return _show_experiment(arguments)
    comparison = maskwright.compare(**vars(arguments))
    print_results(tabulate_comparison(comparison))
    console = make_console()
    if arguments.out is not None:
        for path in sorted(arguments.out.iterdir()):
            console.print(f"written to {escape(str(path))}")
    return 0
