"""What any encoder says of texts besides its task: vectors, and how likely their tokens are."""

from collections.abc import Sequence
from typing import Any

from maskwright.errors import InputError
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.inference.embed import Embedder
from maskwright.serving.answers import Answerer, FillAnswerer


class Reader:
    """Vectors from the encoder, and scores of tokens if it guesses words."""

    def __init__(self, embed: Embedder, scorer: PseudoLikelihoodScorer | None) -> None:
        self.embedder, self.scorer = embed, scorer

    def measure(self, texts: Sequence[str], longest: int | None) -> list[int]:
        """Tokens of each text that go through a model which takes so many of them, or all."""
        added = len(self.embedder.wrap([]))
        counts = [len(one.ids) + added for one in self.embedder.tokenizer.encode_batch(texts)]
        return counts if longest is None else [min(count, longest) for count in counts]

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
            try:
                offsets = tokenizer.encode_with_offsets(text).offsets.tolist()
            except InputError as error:  # of a text that is all blanks, say
                answers.append(error)
                continue
            tokens = [
                {"token": token, "start": start, "end": end, "score": score}
                for token, (start, end), score in zip(
                    tokenizer.tokens(found.token_ids), offsets, found.scores, strict=True
                )
            ]
            answers.append({"score": found.total, "tokens": tokens})
        return answers


def open_reader(answerer: Answerer) -> Reader:
    """The reader beside an answerer, whose weights it shares."""
    if isinstance(answerer, FillAnswerer):
        fill = answerer.fill
        parts = (fill.model, fill.tokenizer, bool(fill.wrap([])))
        return Reader(Embedder.from_parts(*parts), PseudoLikelihoodScorer.from_parts(*parts))
    loaded = answerer.predict.loaded
    parts = (loaded.model, loaded.tokenizer, loaded.add_special_tokens)
    return Reader(Embedder.from_parts(*parts), None)
