"""What any encoder says of texts besides its task: vectors, and how likely their tokens are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.artifact.classifier_folder import is_classifier, open_classifier
from maskwright.artifact.folder import Loaded
from maskwright.errors import InputError
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.inference.embed import Embedder
from maskwright.inference.fill_mask import FillMask
from maskwright.serving.answers import Answerer, FillAnswerer


class Reader:
    """Vectors from the encoder, and scores of tokens if it guesses words."""

    def __init__(self, embed: Embedder, scorer: PseudoLikelihoodScorer | None) -> None:
        self.embedder, self.scorer = embed, scorer

    @property
    def can_score(self) -> bool:
        return self.scorer is not None

    def embed(self, texts: Sequence[str]) -> list[Any]:
        """A list of numbers for each text."""
        return [vector.tolist() for vector in self.embedder(texts)]

    def score(self, texts: Sequence[str]) -> list[Any]:
        """Tokens of each text, where they stand in it, and their log-probabilities in nats."""
        assert self.scorer is not None
        tokenizer = self.scorer.tokenizer
        answers: list[Any] = []
        for text, found in zip(texts, self.scorer.attempt(texts), strict=True):
            if isinstance(found, InputError):
                answers.append(found)
                continue
            offsets = tokenizer.encode_with_offsets(text).offsets.tolist()
            tokens = [
                {"token": token, "start": start, "end": end, "score": score}
                for token, (start, end), score in zip(
                    tokenizer.tokens(found.token_ids), offsets, found.scores, strict=True
                )
            ]
            answers.append({"score": found.total, "tokens": tokens})
        return answers


def open_reader(folder: Path, answerer: Answerer, device: str | None) -> Reader:
    """The reader of a model folder; of a model that fills masks it shares the weights."""
    if isinstance(answerer, FillAnswerer):
        return read_with(answerer.fill)
    assert is_classifier(folder)
    loaded: Loaded[Any] = open_classifier(folder)
    embed = Embedder.from_parts(loaded.model, loaded.tokenizer, loaded.add_special_tokens)
    return Reader(embed, None)


def read_with(fill: FillMask) -> Reader:
    """The reader of a model that fills masks."""
    wraps = bool(fill.wrap([]))
    parts = (fill.model, fill.tokenizer, wraps)
    return Reader(Embedder.from_parts(*parts), PseudoLikelihoodScorer.from_parts(*parts))
