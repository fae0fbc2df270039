"""The task that labels words: entities, parts of speech, and other tags of CoNLL files."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.corpus.column_roles import Column
from maskwright.corpus.table_files import open_lines
from maskwright.corpus.text_inputs import has_conll_name
from maskwright.errors import CorpusError
from maskwright.finetuning.baselines import fit_tagger
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import (
    TaggedSentence,
    read_conll,
    unify_sentences,
)
from maskwright.finetuning.conll_layout import find_layout
from maskwright.finetuning.doubts import join_counts
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
from maskwright.finetuning.token_tables import find_word_table, is_word_table, read_word_table
from maskwright.tokenizer.tokenizer import Tokenizer

Tags = Sequence[Sequence[int]]  # the tag ids of the words of each sentence


class Tokens(LabelTask):
    """A tag for each word: cross-entropy on its first token, scored on whole sentences."""

    name = "tokens"
    roles = ("word", "tag", "sentence")
    level = "token"
    metrics = ("span_f1", "accuracy")
    unused = (*EMBEDDING_SETTINGS, *SPLIT_FLAGS)

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        """Return the columns of a table by name, and those of a CoNLL file by position."""
        if (found := find_word_table(train, given)) is not None:
            return found
        layout = find_layout(list(open_lines(train)[1]), has_tags=True)
        usual = {"word": layout.word, "tag": layout.tag}
        return {role: int(given.get(role, column)) for role, column in usual.items()}

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        columns, notes = files.columns, list[str]()
        if not columns or (path != files.train and self._differs(path, columns)):
            columns = self.find_columns(path, {})
        if is_word_table(columns):
            found = read_word_table(path, columns, files.has_header)
            sentences: list[Row] = [*unify_sentences(found, notes)]
            notes.insert(0, f"a table of words, in {len(sentences):,} sentences")
        else:
            positions = {role: int(column) for role, column in columns.items()}
            sentences = [*read_conll(path, **positions, notes=notes)]
        self.notes += [f"{path.name}: {note}" for note in notes]
        if path == files.train and len(sentences) == 1:
            raise CorpusError(
                f"{path} holds one sentence of {len(_sentence(sentences[0]).words):,} words. "
                "Separate sentences by blank lines, or name the column that counts them: "
                "--columns sentence=… word=… tag=…"
            )
        return sentences

    def _differs(self, path: Path, columns: Mapping[str, Column]) -> bool:
        """Return True if a file is a table, and the training file with these columns is not."""
        if is_word_table(columns):
            return has_conll_name(path)
        return find_word_table(path, {}) is not None

    def list_labels(self, row: Row) -> list[str]:
        return [*_sentence(row).tags]

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return the tags, with ``O`` first."""
        counts = join_counts(Counter(tag for row in rows for tag in _sentence(row).tags))
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
        "accuracy": sum(t == f for t, f in pairs) / len(pairs) if pairs else math.nan,
        **{f"span_f1/{kind}": each.f1 for kind, each in kinds.items()},
    }
