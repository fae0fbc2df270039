"""``maskwright finetune``: a model folder and labeled text to a model that answers."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import maskwright
from maskwright.cli.flags import (
    Parser,
    add_config_flags,
    add_private_flag,
    add_table_flags,
    all_values,
    read_roles,
    repeat_command,
    say_loading,
)
from maskwright.cli.tables import make_console, print_table
from maskwright.console import say
from maskwright.errors import CorpusError
from maskwright.finetuning.column_roles import ColumnsError, show_columns
from maskwright.finetuning.config import GLUE_TASKS, TASKS, FinetuneConfig
from maskwright.finetuning.metrics import (
    SetResults,
    describe_defeats,
    get_judged,
    list_fold_scores,
    list_scores,
    read_results,
)
from maskwright.runs.find_model import HELP
from maskwright.runs.run_directory import MODEL_NAME, REPORT_NAME, read_example_files

_EPILOG = """tasks:
{tasks}

examples:
  maskwright finetune runs/NAME --preset sst2 --train SST-2/train.tsv --valid SST-2/dev.tsv \\
      --out runs/sst2
  maskwright finetune runs/NAME --task classification --train mails.csv --out runs/mails \\
      --columns sentence1=body label=folder --seeds 5
  maskwright finetune runs/NAME --task tokens --train wikigold.conll --out runs/ner
  maskwright finetune runs/NAME --task spans --train train-v2.0.json --out runs/answers
  maskwright finetune runs/NAME --task embedding --train pairs.tsv --out runs/pairs \\
      --columns sentence1=0 sentence2=1
  maskwright finetune runs/HALF --task classification --train mails.csv --out runs/small \\
      --columns sentence1=body label=folder --teacher runs/mails
  maskwright finetune --resume runs/mails

Without --valid a tenth of the examples is held out (--valid-share). Baselines without any encoder
are printed beside; with --control a random encoder of the same shape as well.
A run that was stopped or killed is resumed when the same command is given again, or with --resume:
finished seeds are kept.
"""
_SHOWN_CLASSES = 20
_SCORES = ("precision", "recall", "f1")
_COLUMNS = (
    "names or positions from 0: text, or sentence1 and sentence2, and label; of tokens: word, tag "
    "[usual names of the table, such as text and category, or what its content says]"
)


def build_parser() -> Parser:
    """Return the parser of ``maskwright finetune``."""
    tasks = "\n".join(f"  {name:<16} {text}" for name, (_, text) in TASKS.items())
    parser = Parser("finetune", "Fine-tune a model on labeled text.", _EPILOG.format(tasks=tasks))
    parser.add_argument("folder", nargs="?", help=HELP)
    parser.add_argument("--task", choices=tuple(TASKS), help="what is to be learned")
    parser.add_argument(
        "--preset", choices=sorted(GLUE_TASKS), help="task, columns and metrics of GLUE"
    )
    parser.add_argument("--train", type=Path, help="labeled examples")
    valid = "examples that choose the weights [some of --train]"
    parser.add_argument("--valid", type=Path, help=valid)
    test = "examples to score the chosen weights on, once [none]"
    parser.add_argument("--test", type=Path, help=test)
    share = "held out where there is no --valid [0.1]"
    parser.add_argument("--valid-share", type=float, default=0.1, help=share)
    parser.add_argument("--out", type=Path, help="the run directory")
    resume = "resume an unfinished run directory, without any other flag"
    parser.add_argument("--resume", type=Path, metavar="RUN", help=resume)
    add_table_flags(parser, _COLUMNS)
    parser.add_argument("--control", action="store_true", help="score a random encoder as well")
    parser.add_argument(
        "--teacher",
        metavar="TUNED",
        help="learn from the answers of a model that was fine-tuned for this task, too: a run, a "
        "model folder, or hf:NAME",
    )
    add_private_flag(parser)
    add_config_flags(parser, FinetuneConfig(), skip=("private",))
    return parser


def main(argv: Sequence[str]) -> int:
    given = all_values(build_parser().parse(argv))
    given["columns"] = read_roles(given["columns"])
    say_loading()
    try:
        folder = maskwright.finetune(**given, report=partial(say, flush=True))
    except ColumnsError as error:
        whole = repeat_command("finetune", argv, show_columns(error.columns))
        raise CorpusError(f"{str(error).partition('--columns')[0]}{whole}") from None
    show_run(folder.parent)
    return 0


def show_run(run: Path) -> None:
    """Print the scores of a finished run as tables, its files, and how to use its model."""
    results = read_results(run)
    if results is None:  # of a task without labels
        say(f"\n{run / MODEL_NAME}: try  maskwright embed {run} --file … --out vectors.npy")
        return
    if "folds" in results:
        folds = results["folds"]
        say(f"\nin {folds['count']} folds, on {folds['examples']:,} examples, mean ± deviation:\n")
        titles = ["", *folds["baselines"], "models"]
        rows = [[name, *row] for name, row in list_fold_scores(folds)]
        print_table(make_console(), titles, rows)
    if "test" in results or "folds" in results:
        say(f"\non the {results['valid_examples']:,} examples that chose the weights:")
    show_scores(results)
    judged = get_judged(results)
    if "test" in results:
        test = read_example_files(run).get("test")
        say(f"\non {judged.get('examples', 0):,} examples of {test}:")
        show_scores(judged)
    _show_classes(judged)
    for line in describe_defeats(results):
        say(line)
    say()
    for path in run.glob("predictions.*"):
        say(f"Predictions: {path}")
    if (run / REPORT_NAME).exists():
        say(f"Report: {run / REPORT_NAME}")
    say(f'\n{run / MODEL_NAME}: try  maskwright predict {run} "…"')


def show_scores(results: SetResults) -> None:
    """Print a row for each metric: baselines, the random encoder if there is one, the model."""
    random = ["random encoder"] * ("random_encoder" in results)
    titles = ["", *results["baselines"], *random, "this model"]
    say()
    print_table(make_console(), titles, [[name, *row] for name, row in list_scores(results)])


def _show_classes(judged: SetResults) -> None:
    """Print a row for each class; of many classes those that occur most."""
    classes = judged.get("classes", {})
    if len(classes) < 2:
        return
    most = sorted(classes, key=lambda name: -classes[name]["examples"])[:_SHOWN_CLASSES]
    rows = [
        [name, *(f"{scores[each]:.4f}" for each in _SCORES), f"{scores['examples']:,}"]
        for name, scores in classes.items()
        if name in most
    ]
    say("\nby class, the saved model:")
    print_table(make_console(), ["", *_SCORES, "examples"], rows)
    if len(classes) > len(most):
        say(f"and {len(classes) - len(most):,} more classes in results.json")
