"""The task that labels words: entities, parts of speech, and other tags of CoNLL files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.errors import CorpusError, InputError
from maskwright.finetuning.baselines import fit_tagger
from maskwright.finetuning.column_roles import Column
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import TaggedSentence, read_conll
from maskwright.finetuning.examples import Examples, Row, Sentences, encode_words
from maskwright.finetuning.metrics import Scores, score_spans
from maskwright.finetuning.task import (
    EMBEDDING_SETTINGS,
    SPLIT_FLAGS,
    Baseline,
    Labels,
    LabelTask,
    Logits,
    decide,
)
from maskwright.tokenizer.tokenizer import Tokenizer

Tags = Sequence[Sequence[int]]  # the tag ids of the words of each sentence


class Tokens(LabelTask):
    """A tag for each word: cross-entropy on its first token, scored on whole sentences."""

    name = "tokens"
    roles = ("word", "tag")
    level = "token"
    metrics = ("span_f1", "accuracy")
    unused = (*EMBEDDING_SETTINGS, *SPLIT_FLAGS)

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        for role, column in given.items():
            if not str(column).lstrip("-").isdecimal():
                raise InputError(
                    f"--columns {role}={column} must be a position, from 0; -1 is the last column"
                )
        return {role: int(column) for role, column in given.items()}

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        columns = {role: int(column) for role, column in files.columns.items()}
        rewritten: dict[str, str] = {}
        sentences: list[Row] = [*read_conll(path, **columns, rewritten=rewritten)]
        if rewritten:
            shown = [f"{tag} is read as {name}" for tag, name in sorted(rewritten.items())]
            more = f", and {len(shown) - 5} more" if len(shown) > 5 else ""
            self.notes.append(f"{path.name}: the tag {', '.join(shown[:5])}{more}")
        if path == files.train and len(sentences) == 1:
            raise CorpusError(
                f"{path} holds one sentence of {len(_sentence(sentences[0]).words):,} words. "
                "Separate sentences by blank lines."
            )
        return sentences

    def list_labels(self, row: Row) -> list[str]:
        return [*_sentence(row).tags]

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return the tags, with ``O`` first."""
        counts = Counter(tag for row in rows for tag in _sentence(row).tags)
        if len(counts) < 2:
            tag = next(iter(counts), "none")
            raise CorpusError(f"all words have the tag {tag}. Check the files and --columns tag=…")
        names = tuple(sorted(counts, key=lambda tag: (tag != "O", tag)))
        return Labels(names, tuple(counts[name] for name in names))

    def encode(
        self, rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, max_length: int
    ) -> Examples:
        """Return sentences as inputs, without pieces in which no word begins."""
        sentences = [_sentence(row) for row in rows]
        examples, owners = encode_words([one.words for one in sentences], tokenizer, max_length)
        assert examples.positions is not None
        used = [number for number, (_, words) in enumerate(owners) if words]
        if sentences and not used:
            rule = "no word from this line on has a token; at least one is required"
            raise CorpusError(f"{sentences[0].place}: {rule}. Check --columns word=…")
        owners = [owners[number] for number in used]
        targets = [labels.encode(one.tags, one.place) for one in sentences]
        return replace(
            examples,
            inputs=[examples.inputs[number] for number in used],
            targets=[[targets[sentence][word] for word in words] for sentence, words in owners],
            positions=[examples.positions[number] for number in used],
            sentences=Sentences(targets, owners),
            rows=rows,
        )

    def collect(self, examples: Examples, logits: Sequence[Logits]) -> list[list[int]]:
        """Return the tags of whole sentences."""
        assert examples.sentences is not None
        return examples.sentences.join([decide(self.problem, one).tolist() for one in logits])

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        return score_tags(labels, _targets(examples), predictions)

    def fit_baselines(self, labels: Labels, train: Examples) -> dict[str, Baseline]:
        bag = fit_tagger([_sentence(row).words for row in train.rows], _targets(train))
        most_frequent = int(np.argmax(labels.counts))

        def predict_majority(examples: Examples) -> list[list[int]]:
            return [[most_frequent] * len(tags) for tags in _targets(examples)]

        def predict_bag(examples: Examples) -> list[list[int]]:
            return bag([_sentence(row).words for row in examples.rows])

        return {"majority": predict_majority, "bag of words": predict_bag}


def _sentence(row: Row) -> TaggedSentence:
    assert isinstance(row, TaggedSentence)
    return row


def _targets(examples: Examples) -> list[list[int]]:
    assert examples.sentences is not None
    return examples.sentences.targets


def score_tags(labels: Labels, targets: Tags, found: Tags) -> Scores:
    """Return F1, precision and recall of entities, and the accuracy of all tags."""
    true, said = ([[labels.names[n] for n in one] for one in each] for each in (targets, found))
    scores, kinds = score_spans(true, said)
    pairs = [pair for one in zip(true, said, strict=True) for pair in zip(*one, strict=True)]
    return {
        "span_f1": scores.f1,
        "span_precision": scores.precision,
        "span_recall": scores.recall,
        "accuracy": sum(t == f for t, f in pairs) / max(1, len(pairs)),
        **{f"span_f1/{kind}": each.f1 for kind, each in kinds.items()},
    }
