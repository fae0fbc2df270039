"""Masked marginals: for each token of a text, its log-probability and those of other tokens.

The effect of a variant is the difference of the two (Meier et al., "Language models enable
zero-shot prediction of the effects of mutations on protein function", 2021); a token that the model
finds unlikely is an anomaly.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch

from maskwright.errors import InputError
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer, Questions
from maskwright.inference.text_model import check_finite
from maskwright.tokenizer.token_text import TokenText


@dataclass(frozen=True)
class Marginal:
    """One position of a text.

    Attributes:
        position: the number of the token, from 1 on.
        token: the token there.
        score: its log-probability, in nats.
        alternatives: the likeliest other tokens of text, best first, with theirs.
    """

    position: int
    token: str
    score: float
    alternatives: dict[str, float]

    def to_json(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return {**vars(self)}


def find_marginals(
    scorer: PseudoLikelihoodScorer,
    texts: Iterable[str],
    num_alternatives: int = 5,
    num_masks: int = 1,
) -> Iterator[list[Marginal] | InputError]:
    """Yield the marginals of each text, or an error for one that is too long::

        scorer = PseudoLikelihoodScorer("runs/proteins")
        [marginals] = find_marginals(scorer, ["MKTAYIAKQR"], num_alternatives=20)

    Args:
        scorer: the model.
        texts: any number of texts.
        num_alternatives: how many other tokens; those that represent text are offered.
        num_masks: the tokens that are masked in a pass, at equal distances.

    Raises:
        InputError: a number is out of range.
    """
    if num_alternatives < 0 or num_masks < 1:
        raise InputError("--alternatives must be at least 0, and --masks at least 1")
    for text in texts:
        try:
            yield _find(scorer, text, num_alternatives, num_masks)
        except InputError as error:
            yield error


@torch.inference_mode()
def _find(
    scorer: PseudoLikelihoodScorer, text: str, num_alternatives: int, num_masks: int
) -> list[Marginal]:
    tokenizer = scorer.tokenizer
    ids: list[int] = tokenizer.encode(text).ids.tolist()
    row, first = scorer.wrap_text(ids, text), scorer.wrap([-1]).index(-1)
    questions = Questions(tokenizer.mask_id)
    questions.add_spread(row, first, first + len(ids), num_masks)
    ordinary = torch.as_tensor(tokenizer.ordinary_ids, device=scorer.device)
    show = TokenText(tokenizer).show
    found: dict[int, Marginal] = {}
    for batch in scorer.make_batches(questions.rows):
        asked = [questions.positions[number] for number in batch.numbers]
        length = batch.ids.shape[1]
        places = torch.tensor([n * length + p for n, each in enumerate(asked) for p in each])
        hidden = scorer.encode(batch, scorer.model.predictors(places))
        scores = scorer.model.head(hidden.float()).float().log_softmax(-1)
        check_finite(scores)
        count = min(num_alternatives + 1, len(ordinary))
        best = scores[:, ordinary].topk(count)
        for row_number, position in enumerate(chain.from_iterable(asked)):
            label = row[position]
            pairs = zip(
                ordinary[best.indices[row_number]].tolist(),
                best.values[row_number].tolist(),
                strict=True,
            )
            others = [(token, value) for token, value in pairs if token != label]
            alternatives = {show(token): value for token, value in others[:num_alternatives]}
            number = position - first + 1
            score = float(scores[row_number, label])
            found[number] = Marginal(number, show(label), score, alternatives)
    return [found[number] for number in sorted(found)]
