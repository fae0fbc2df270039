"""Hidden words and pairs of texts together, as in BERT (Devlin et al. 2019) and ALBERT (Lan et al.
2020): the mean losses of both, one plus the other, from one pass through the encoder.
"""

from operator import attrgetter

from maskwright.data.batch import Batch
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.cross_entropy import sum_cross_entropy
from maskwright.objectives.mlm import MLM, MLM_TERM, MaskedLM
from maskwright.objectives.terms import Term, TermSums

PAIRS = "pairs"
PAIR_TERM = Term(1.0, "pair_loss", "pair_accuracy", attrgetter("num_pairs"))


class MaskedLMWithPairs(MaskedLM):
    """The objective over a model with a ``sentence_pair_head``, on rows with ``data.pairs``."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__(model)
        self.terms = {MLM: MLM_TERM, PAIRS: PAIR_TERM}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Sums over the slots of each kind whose label is not -100."""
        assert batch.pair_labels is not None, "rows without pairs"
        logits = self.model(
            batch.input_ids,
            batch.context,
            batch.masked_positions,
            batch.token_type_ids,
            batch.pair_positions,
        )
        return {
            MLM: sum_cross_entropy(logits.masked, batch.masked_labels),
            PAIRS: sum_cross_entropy(logits.pairs, batch.pair_labels),
        }
