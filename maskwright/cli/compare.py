"""``maskwright compare``: runs side by side, with intervals of their differences, and plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_text_flags
from maskwright.cli.tables import make_console, print_table, show_number
from maskwright.console import Console

if TYPE_CHECKING:
    from maskwright.evaluation.compare import ComparedModel, GroupDifference, ModelDifference

_EPILOG = """examples:
  maskwright compare runs/A runs/B
  maskwright compare runs/A runs/B runs/C --out comparison
  maskwright compare runs/A hf:google-bert/bert-base-uncased --data novel.txt
  maskwright compare runs/A-* --against runs/B-*        (several seeds of two settings)

All models are scored on the same pinned masks; the differences from the first one come with 95 %
intervals of a bootstrap over rows that draws the same rows for both. Models of different tokenizers
are compared by bits per character, on text files: give --data. With --against, intervals are those
of the mean difference over seeds, paired by seed if both groups have the same seeds. --out gets
comparison.json, and curves.png and curves.svg: loss and masked accuracy against steps, tokens and
minutes.
"""
_BITS_PER_CHARACTER = "bits_per_character"
_SHOWN = ("loss", "masked_accuracy", "masked_accuracy_top5", _BITS_PER_CHARACTER)


def build_parser() -> Parser:
    """Return the parser of ``maskwright compare``."""
    parser = Parser("compare", "Put runs side by side.", _EPILOG)
    parser.add_argument("runs", nargs="+", help="run directories, model folders, or hf:NAME")
    group = "a second group of runs: compare the means of the groups over their seeds"
    parser.add_argument("--against", nargs="+", default=[], metavar="RUN", help=group)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write comparison and plots there")
    rows = "the shortest of the runs"
    add_text_flags(parser, "the data of the first run", rows, "an eighth of the text")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    comparison = maskwright.compare(**vars(arguments))
    console, models = make_console(), comparison["models"]
    console.print(f"{escape(_describe_task(models))}\n")
    titles = ("model", "parameters", "steps", "tokens", "minutes", *_SHOWN)
    print_table(console, titles, _list_models(models))
    console.print()
    for difference in comparison["differences_from_first"]:
        _print_difference(console, difference, models[0]["name"])
    if groups := comparison.get("difference_of_groups"):
        _print_groups(console, groups)
    if arguments.out is not None:
        for path in sorted(arguments.out.iterdir()):
            console.print(f"written to {escape(str(path))}")
    return 0


def _share_masks(models: "Sequence[ComparedModel]") -> bool:
    return len({one["mlm"]["settings"]["masks_sha256"] for one in models}) == 1


def _list_models(models: "Sequence[ComparedModel]") -> list[tuple[str, ...]]:
    """Return a line for each model, without the scores that cannot be compared."""
    comparable = _SHOWN if _share_masks(models) else (_BITS_PER_CHARACTER,)
    lines: list[tuple[str, ...]] = []
    for one in models:
        last, seconds = one["last_validation"], one["last_validation"].get("seconds")
        values = {score["name"]: score["value"] for score in one["mlm"]["scores"]}
        scores = [values.get(name) if name in comparable else None for name in _SHOWN]
        counts = [last.get(name) for name in ("step", "tokens")]
        lines.append(
            (
                one["name"],
                f"{one['num_parameters']:,}",
                *(f"{count:,}" if isinstance(count, int) else "" for count in counts),
                f"{seconds / 60:.1f}" if isinstance(seconds, int | float) else "",
                *("" if score is None else f"{score:.4f}" for score in scores),
            )
        )
    return lines


def _describe_task(models: "Sequence[ComparedModel]") -> str:
    """Return one line: what the models were scored on, and what can be compared."""
    result = models[0]["mlm"]
    count = next(score["num_samples"] for score in result["scores"] if score["name"] == "loss")
    task = f"{count:,} masked tokens of {result['data']['name']}, rows of "
    task += f"{result['settings']['max_seq_length']}, pinned masks at 15 %"
    if _share_masks(models):
        return task
    why = "tokenizers" if len({one["tokenizer_fingerprint"] for one in models}) > 1 else "rows"
    return f"{task}; {why} differ, so only bits per character can be compared, and not paired"


def _print_difference(console: Console, difference: "ModelDifference", first: str) -> None:
    how = "paired by row" if difference["is_paired"] else "not paired: other masks"
    console.print(f"[bold]{escape(difference['name'])}[/bold] minus {escape(first)}  ({how})")
    lines = [
        (
            score["name"],
            "" if score["value"] is None else f"{score['value']:+.4f}",
            *_describe_interval(score["low"], score["high"]),
        )
        for score in difference["scores"]
    ]
    print_table(console, ("score", "difference", "95 % interval", ""), lines)
    console.print()


def _print_groups(console: Console, difference: "GroupDifference") -> None:
    (ours, theirs), is_paired = difference["num_runs"], difference["is_paired"]
    how = "paired by seed" if is_paired else "not paired: the seeds differ"
    console.print(f"[bold]{ours} runs[/bold] minus {theirs} of --against  ({how})")
    lines = [
        (
            score["name"],
            *(show_number(score[name]) for name in ("mean", "mean_against")),
            f"{score['value']:+.4f}",
            f"{score['deviation']:.4f}",
            *_describe_interval(score["low"], score["high"]),
        )
        for score in difference["scores"]
        if score["value"] is not None
    ]
    titles = ("score", "mean", "against", "difference", "deviation", "95 % interval", "")
    print_table(console, titles, lines)
    console.print()


def _describe_interval(low: float | None, high: float | None) -> tuple[str, str]:
    """Return an interval, and whether it is on one side of 0."""
    if low is None or high is None:
        return "", ""
    return f"{low:+.4f} to {high:+.4f}", "" if low <= 0 <= high else "differs"
