"""``maskwright finetune`` and ``predict``: a model that answers, and its answers to texts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import maskwright
from maskwright.cli.flags import (
    Parser,
    add_config_flags,
    add_private_flag,
    add_table_flags,
    all_values,
    read_roles,
    say_loading,
)
from maskwright.cli.inputs import STANDARD_INPUT, add_arguments, read_sentences
from maskwright.console import make_console, print_table, say, say_json
from maskwright.finetuning.config import GLUE_TASKS, TASKS, FinetuneConfig
from maskwright.finetuning.metrics import (
    SetResults,
    describe_defeats,
    get_judged,
    list_scores,
    read_results,
)
from maskwright.formatting import show_score
from maskwright.runs.find_model import HELP
from maskwright.runs.run_directory import MODEL_NAME, REPORT_NAME, read_example_files

if TYPE_CHECKING:
    from maskwright.finetuning.predict import AnsweredText
    from maskwright.finetuning.task import Answer

_FINETUNE_HELP = """tasks:
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
    "names or positions from 0: text, or sentence1 and sentence2, and label; text=title+body joins "
    "columns; of tokens: word, tag, and sentence of a table [usual names of the table, such as "
    "text and category, or what its content says]"
)


def finetune_parser() -> Parser:
    tasks = "\n".join(f"  {name:<16} {text}" for name, (_, text) in TASKS.items())
    parser = Parser(
        "finetune", "Fine-tune a model on labeled text.", _FINETUNE_HELP.format(tasks=tasks)
    )
    add = parser.add_argument
    add("folder", nargs="?", help=HELP)
    add("--task", choices=tuple(TASKS), help="what is to be learned")
    add("--preset", choices=sorted(GLUE_TASKS), help="task, columns and metrics of GLUE")
    add("--train", type=Path, help="labeled examples")
    add("--valid", type=Path, help="examples that choose the weights [some of --train]")
    add("--test", type=Path, help="examples to score the chosen weights on, once [none]")
    add("--valid-share", type=float, default=0.1, help="held out where there is no --valid [0.1]")
    add(
        "--group", metavar="COLUMN", help="never split what has one value there, such as a customer"
    )
    later = "hold out examples from this value on, such as date=2026-01-01"
    add("--valid-after", metavar="COLUMN=VALUE", help=later)
    add("--out", type=Path, help="the run directory")
    resume = "resume an unfinished run directory, without any other flag"
    add("--resume", type=Path, metavar="RUN", help=resume)
    add_table_flags(parser, _COLUMNS)
    add("--control", action="store_true", help="score a random encoder as well")
    add(
        "--teacher",
        metavar="TUNED",
        help="learn from the answers of a model that was fine-tuned for this task, too: a run, a "
        "model folder, or hf:NAME",
    )
    unlabeled = "first pretrain on text of the task without labels (lines or a table), in a run "
    unlabeled += "OUT-adapted; texts of validation and test examples are left out"
    add("--unlabeled", type=Path, metavar="FILE", help=unlabeled)
    add_private_flag(parser)
    add_config_flags(parser, FinetuneConfig(), skip=("private",))
    return parser


def finetune(argv: Sequence[str]) -> int:
    given = all_values(finetune_parser().parse(argv))
    given["columns"] = read_roles(given["columns"])
    say_loading()
    folder = maskwright.finetune(**given, report=partial(say, flush=True))
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
        rows = [[name, *row] for name, row in list_scores(folds)]
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
    classes = judged.get("classes", {})
    if len(classes) < 2:
        return
    most = sorted(classes, key=lambda name: -classes[name]["examples"])[:_SHOWN_CLASSES]
    rows = [
        [name, *(show_score(scores[each]) for each in _SCORES), f"{scores['examples']:,}"]
        for name, scores in classes.items()
        if name in most
    ]
    say("\nby class, the saved model:")
    print_table(make_console(), ["", *_SCORES, "examples"], rows)
    if len(classes) > len(most):
        say(f"and {len(classes) - len(most):,} more classes in results.json")


_PREDICT_HELP = """\
A single argument that is a file is read: a table (.tsv, .csv, .jsonl, .parquet), or
text, one a line. One answer a line: the label, its probability and the text, separated by tabs; of
several labels each with its probability; of words each word and its tag, with a blank line after
each sentence. --entities: each entity of a text with its kind, its mean probability, its words, and
the characters in the text where it begins and ends, from 0. --json: an object for each text, with
all probabilities; of words with a list of them and their characters. A blank line is answered with
an empty row. The columns of a table are those that the model was trained on, or sentence1 and
sentence2; give others with --columns.

A model that labels words splits the punctuation off the words of plain text. It reads files named
.conll, .iob or .bio (.conll.txt, …) as finetune does, a word a line and a blank line between
sentences, and any file for which --columns word=N gives the position of words; tags are ignored.

examples:
  maskwright predict runs/sst2 "A fine film." "A long one."
  maskwright predict runs/sst2 reviews.txt > answers.tsv
  maskwright predict runs/rte pairs.tsv --columns sentence1=0 sentence2=1 --no-header
  maskwright predict runs/sst2 dev.tsv
  echo "Snails live in Ireland." | maskwright predict runs/ner --entities
  maskwright predict runs/ner wikigold.conll > tagged.tsv
  maskwright predict runs/ner eng.testa --columns word=0
"""


def predict_parser() -> Parser:
    parser = Parser("predict", "Let a fine-tuned model answer.", _PREDICT_HELP)
    columns = "text, or sentence1 and sentence2: names or positions from 0; of words: word "
    columns += "[as in training]"
    add_arguments(parser, "texts", columns)
    add = parser.add_argument
    add("--table", type=Path, help="texts or pairs in a TSV, CSV, … file")
    entities = "entities and their characters in the text, not words and tags"
    add("--entities", action="store_true", help=entities)
    add("--json", action="store_true", help="one JSON object a line")
    return parser


def predict(argv: Sequence[str]) -> int:
    arguments = predict_parser().parse(argv)
    is_piped = arguments.file == STANDARD_INPUT
    if arguments.file is None and arguments.table is None:
        is_piped = arguments.text in ([], ["-"])
    predictions = maskwright.predict(
        arguments.folder,
        (one.text for one in read_sentences(arguments)) if is_piped else tuple(arguments.text),
        file=None if is_piped else arguments.file,
        table=arguments.table,
        columns=read_roles(arguments.columns),
        header=arguments.header,
        entities=arguments.entities,
        device=arguments.device,
    )
    show = _show_entities if arguments.entities else show_prediction
    for prediction in predictions:
        show(prediction, arguments.json)
    return 0


def show_prediction(prediction: "AnsweredText", as_json: bool) -> None:
    """Print one prediction, as a line of JSON or as lines for people and spreadsheets."""
    texts, answer, sentence = prediction.texts, prediction.answer, prediction.sentence
    named = {} if prediction.id is None else {"id": prediction.id}
    if isinstance(answer, list):
        if as_json and sentence is not None:
            words = [
                {"word": word, "start": start, "end": end, **_describe_answer(one)}
                for word, (start, end), one in zip(texts, sentence.spans, answer, strict=True)
            ]
            say_json({**named, "text": sentence.text, "words": words})
        else:
            pairs = zip(texts, answer, strict=True)
            say("".join(f"{word}\t{one.label}\n" for word, one in pairs))
    elif as_json:
        span = None if answer is None else answer.span
        say_json({**named, "texts": texts, **_describe_answer(answer), "span": span})
    else:
        shown = prediction.id or "\t".join(" ".join(text.split()) for text in texts)
        say("" if answer is None else f"{_show_label(answer)}\t{shown}")


def _show_entities(prediction: "AnsweredText", as_json: bool) -> None:
    """Print the entities of one text, a line each, or a line of JSON with the text."""
    entities, sentence = prediction.entities, prediction.sentence
    if as_json:
        text = "" if sentence is None else sentence.text
        say_json({"text": text, "entities": [one._asdict() for one in entities]})
        return
    for kind, score, text, start, end in entities:
        say(f"{kind}\t{score:.4f}\t{' '.join(text.split())}\t{start}\t{end}")
    say()


def _show_label(answer: "Answer") -> str:
    if isinstance(answer.label, float):
        return f"{answer.label:.4f}"
    if isinstance(answer.label, list):
        return "|".join(f"{name} {answer.probabilities[name]:.4f}" for name in answer.label)
    return f"{' '.join(str(answer.label).split())}\t{answer.score:.4f}"


def _describe_answer(answer: "Answer | None") -> dict[str, object]:
    """Return an answer for JSON: the same fields for all, null where it has none."""
    if answer is None:
        return {"label": None, "score": None, "probabilities": None}
    known = answer.probabilities or None
    return {"label": answer.label, "score": answer.score, "probabilities": known}
