"""A fine-tuned model's answers to texts, pairs of texts, and sentences of words.

K labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.errors import InputError
from maskwright.finetuning.examples import Examples, encode_texts, encode_words
from maskwright.finetuning.scoring import compute_logits
from maskwright.finetuning.spans import OUTSIDE
from maskwright.model_folder.classifier_folder import open_classifier
from maskwright.train.config import Precision
from maskwright.train.device import choose_device

_THRESHOLD = 0.5  # of one label of several


@dataclass(frozen=True)
class Answer:
    """What a model says of one input.

    Attributes:
        label: the likeliest label, of several at once those above one half, or a number. Of a word
            that the tokenizer drops, which the model never sees: ``O``, or "" if there is no ``O``.
        score: the probability of that label; None where there are several, or a number, or nothing
            was computed.
        probabilities: of every label; none of a number, or where nothing was computed.
    """

    label: str | list[str] | float
    score: float | None
    probabilities: Mapping[str, float]


class Predictor:
    """The model in a folder that ``maskwright finetune`` wrote; behind ``maskwright predict``.

    ::

        predict = Predictor("runs/sst2/model")
        predict(["a fine film", "a long one"])[0].label

    Args:
        folder: a classifier's folder, or the run of fine-tuning that wrote it.
        device: cpu, cuda, …; ``auto``: the GPU if there is one.
        precision: of the matrix products.

    Raises:
        ModelFolderError: `folder` is no classifier's folder.
        ConfigError: there is no such device.
    """

    def __init__(
        self, folder: Path | str, device: str = "auto", precision: Precision = "fp32"
    ) -> None:
        self.loaded = open_classifier(folder)
        self.precision: Precision = precision
        self.loaded.model.to(choose_device(device, field="device"))
        self.labels_tokens = self.loaded.model.head_config.level == "token"
        self.longest = self.loaded.max_length
        self.num_texts = self.num_cut = 0

    def __call__(self, texts: Sequence[str | tuple[str, str]]) -> list[Answer]:
        """The answer to each text, or to each pair of texts.

        Raises:
            InputError: the model labels tokens (`tag` does), texts and pairs are mixed, or it was
                trained on the other of these.
        """
        if self.labels_tokens:
            raise InputError("this model labels words, not texts.")
        each = [(one,) if isinstance(one, str) else tuple(one) for one in texts]
        if len(set(map(len, each))) > 1:
            raise InputError("texts and pairs of texts cannot be mixed.")
        num_texts = self.loaded.num_texts
        if num_texts is not None and each and len(each[0]) != num_texts:
            raise InputError(
                "this model was trained on single texts. Give one text at a time; of a table, "
                "one column (sentence1)."
                if num_texts == 1
                else "this model was trained on pairs of texts. Give two at a time; of a table, "
                "two columns (sentence1, sentence2)."
            )
        inputs, num_cut = encode_texts(each, self.loaded.tokenizer, self.longest)
        self.num_texts, self.num_cut = self.num_texts + len(each), self.num_cut + num_cut
        logits = self._compute(Examples(inputs, np.zeros(len(inputs))))
        return [self._answer(one) for one in logits]

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[Answer]]:
        """The answer to each word of each sentence, without a score for words that become no token.

        Raises:
            InputError: the model labels texts.
        """
        if not self.labels_tokens:
            raise InputError("this model labels texts, not words.")
        examples, owners = encode_words(sentences, self.loaded.tokenizer, self.longest)
        unseen = Answer(OUTSIDE if OUTSIDE in self.loaded.labels else "", None, {})
        answers = [[unseen] * len(words) for words in sentences]
        for (sentence, words), logits in zip(owners, self._compute(examples), strict=True):
            for word, one in zip(words, logits, strict=True):
                answers[sentence][word] = self._answer(one)
        return answers

    def _compute(self, examples: Examples) -> list[NDArray[np.float32]]:
        pad_id = self.loaded.tokenizer.pad_id
        return compute_logits(self.loaded.model, examples, pad_id, self.precision)

    def _answer(self, logits: NDArray[Any]) -> Answer:
        names, problem = self.loaded.labels, self.loaded.problem
        values = torch.from_numpy(np.asarray(logits, np.float32))
        if problem == "regression":
            return Answer(values[0].item(), None, {})
        if problem == "multi_label_classification":
            found = dict(zip(names, values.sigmoid().tolist(), strict=True))
            chosen = [name for name, value in found.items() if value > _THRESHOLD]
            return Answer(chosen, None, found)
        found = dict(zip(names, values.softmax(-1).tolist(), strict=True))
        best = max(found, key=found.__getitem__)
        return Answer(best, found[best], found)
