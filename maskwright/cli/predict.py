"""``maskwright predict``: the answers of a fine-tuned model to texts, pairs or sentences."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import maskwright
from maskwright.cli.flags import Parser, read_roles
from maskwright.cli.inputs import add_arguments, read_sentences
from maskwright.console import say, say_json

if TYPE_CHECKING:
    from maskwright.finetuning.predict import AnsweredText
    from maskwright.finetuning.task import Answer

_EPILOG = """A single argument that is a file is read: a table (.tsv, .csv, .jsonl, .parquet), or
text, one a line. One answer a line: the label, its probability and the text, separated by tabs; of
several labels each with its probability; of words each word and its tag, with a blank line after
each sentence. --entities: each entity of a text with its kind, its mean probability, its words, and
the characters in the text where it begins and ends, from 0. --json: with all probabilities, and the
characters of each word. A blank line is answered with an empty row. The columns of a table are
those that the model was trained on, or sentence1 and sentence2; give others with --columns.

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


def build_parser() -> Parser:
    """Return the parser of ``maskwright predict``."""
    parser = Parser("predict", "Let a fine-tuned model answer.", _EPILOG)
    columns = "sentence1, sentence2: names or positions from 0; of CoNLL: word [as in training]"
    add_arguments(parser, "texts, or one file", columns)
    parser.add_argument("--table", type=Path, help="texts or pairs in a TSV, CSV, … file")
    entities = "entities and their characters in the text, not words and tags"
    parser.add_argument("--entities", action="store_true", help=entities)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    reads_input = arguments.file is None and arguments.table is None
    is_piped = reads_input and arguments.text in ([], ["-"])
    predictions = maskwright.predict(
        arguments.folder,
        (one.text for one in read_sentences(arguments)) if is_piped else tuple(arguments.text),
        file=arguments.file,
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
    texts, answer = prediction.texts, prediction.answer
    if isinstance(answer, list):
        pairs = list(zip(texts, answer, strict=True))
        spans = [] if prediction.sentence is None else prediction.sentence.spans
        if as_json:
            places = [{"start": start, "end": end} for start, end in spans] or [{}] * len(pairs)
            rows = zip(pairs, places, strict=True)
            say_json([{"word": word, **place, **_describe(one)} for (word, one), place in rows])
        else:
            say("".join(f"{word}\t{one.label}\n" for word, one in pairs))
    elif as_json:
        say_json({"texts": texts, **({"label": None} if answer is None else _describe(answer))})
    else:
        shown = "\t".join(" ".join(text.split()) for text in texts)
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


def _describe(answer: "Answer") -> dict[str, object]:
    found = {"label": answer.label, "score": answer.score, "probabilities": answer.probabilities}
    return found if answer.span is None else {**found, "span": answer.span}
