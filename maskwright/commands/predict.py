"""``maskwright predict``: the answers of a fine-tuned model to texts, pairs or sentences."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.commands.finetune import read_roles
from maskwright.commands.flags import Parser
from maskwright.commands.model_folder import find_model_folder
from maskwright.commands.sentences import add_arguments, read_sentences
from maskwright.errors import InputError
from maskwright.finetune.tables import parse_columns, read_columns

if TYPE_CHECKING:
    from maskwright.finetune.predict import Answer, Predictor

_EPILOG = """One answer a line: the label, its probability and the text, separated by tabs; of words
each word and its tag, with a blank line after each sentence. --json: with all probabilities.

examples:
  maskwright predict runs/sst2 "A fine film." "A long one."
  maskwright predict runs/sst2 --file reviews.txt > answers.tsv
  maskwright predict runs/rte --table pairs.tsv --columns sentence1=0 sentence2=1
  echo "Snails live in Ireland ." | maskwright predict runs/ner
"""
_BLOCK = 512  # texts that are answered together


def build_parser() -> Parser:
    """The command line of ``maskwright predict``."""
    parser = Parser("predict", "Let a fine-tuned model answer.", _EPILOG)
    add_arguments(parser, "texts")
    parser.add_argument("--table", type=Path, help="texts or pairs in a TSV, CSV, … file")
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="ROLE=COLUMN", help="sentence1, sentence2"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    if arguments.table is not None and (arguments.file is not None or arguments.text):
        raise InputError("give texts, --file or --table, one of them")
    folder = find_model_folder(arguments.folder)
    from maskwright.finetune.predict import Predictor

    predict = Predictor(folder, arguments.device or "auto")
    texts = _read_table(arguments) if arguments.table else _read_lines(arguments)
    for block in _cut(texts):
        if predict.labels_tokens:
            _show_tags(predict, [text.split() for (text, *_) in block], arguments.json)
        else:
            _show_answers(predict, block, arguments.json)
    if predict.num_cut:
        print(f"{predict.num_cut:,} texts cut at {predict.longest} tokens", file=sys.stderr)
    return 0


def _read_table(arguments: Any) -> Iterator[tuple[str, ...]]:
    from maskwright.finetune.examples import read_texts

    columns = parse_columns(read_roles(arguments.columns) or {"sentence1": "sentence1"})
    for row in read_columns(arguments.table, columns):
        yield tuple(read_texts(row))


def _read_lines(arguments: Any) -> Iterator[tuple[str, ...]]:
    return ((sentence.text,) for sentence in read_sentences(arguments) if sentence.text.strip())


def _cut(texts: Iterator[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    block: list[tuple[str, ...]] = []
    for one in texts:
        block.append(one)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


def _show_answers(predict: "Predictor", block: list[tuple[str, ...]], as_json: bool) -> None:
    asked = [each[0] if len(each) == 1 else (each[0], each[1]) for each in block]
    for texts, answer in zip(block, predict(asked), strict=True):
        if as_json:
            print(json.dumps({"texts": texts, **_describe(answer)}, ensure_ascii=False))
            continue
        shown = "\t".join(" ".join(text.split()) for text in texts)
        print(f"{_show_label(answer)}\t{shown}")


def _show_tags(predict: "Predictor", sentences: list[list[str]], as_json: bool) -> None:
    for words, answers in zip(sentences, predict.tag(sentences), strict=True):
        pairs = list(zip(words, answers, strict=True))
        if as_json:
            tagged = [{"word": word, **_describe(answer)} for word, answer in pairs]
            print(json.dumps(tagged, ensure_ascii=False))
        else:
            print("".join(f"{word}\t{answer.label}\n" for word, answer in pairs))


def _show_label(answer: "Answer") -> str:
    if isinstance(answer.label, float):
        return f"{answer.label:.4f}"
    if isinstance(answer.label, list):
        return "|".join(answer.label)
    return f"{answer.label}\t{answer.score:.4f}"


def _describe(answer: "Answer") -> dict[str, Any]:
    return {"label": answer.label, "score": answer.score, "probabilities": answer.probabilities}
