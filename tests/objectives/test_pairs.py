"""Hidden words and pairs of texts, learned together."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from maskwright.data.batch import Batch
from maskwright.data.loader import StepRequest
from maskwright.data.rows import DataPosition
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedTokensLoss, predict_masked
from maskwright.objectives.pairs import SentencePairsLoss, predict_pairs
from tests.helpers import SyntheticCorpus, random_corpus, row_source
from tests.models import small_config
from tests.train.helpers import Recorder, make_trainer


def make_model() -> MaskedLanguageModel:
    model = MaskedLanguageModel(replace(small_config(preset="bert"), sentence_pair_head=True))
    initialize(model, 0)
    return model.eval()


def make_batch(corpus: SyntheticCorpus | None = None) -> Batch:
    source = row_source(corpus or random_corpus(), pairs="next")
    return source.load(StepRequest(16, 20, 20, 0.15), DataPosition(16)).micro_batches[0]


def test_the_sums_are_those_of_a_plain_computation() -> None:
    model, batch = make_model(), make_batch()
    sums = SentencePairsLoss(model)(batch)
    assert batch.pair_labels is not None
    for name, logits, labels, count in (
        ("mlm", predict_masked(model, batch), batch.masked_labels, batch.num_predictions),
        ("pairs", predict_pairs(model, batch), batch.pair_labels, batch.num_pairs),
    ):
        used = labels != -100
        assert int(used.sum()) == count > 0
        expected = F.cross_entropy(logits[used], labels[used], reduction="sum")
        assert sums[name].loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert sums[name].num_correct == (logits[used].argmax(-1) == labels[used]).sum()


def test_terms_count_what_is_summed() -> None:
    batch = make_batch()
    terms = SentencePairsLoss(make_model()).terms
    counts = {name: term.count(batch) for name, term in terms.items()}
    assert counts == {"mlm": batch.num_predictions, "pairs": batch.num_pairs}
    assert [term.loss_name for term in terms.values()] == ["loss", "pair_loss"]


def test_hidden_words_are_predicted_with_the_types_of_their_texts() -> None:
    model, batch = make_model(), make_batch()
    with torch.no_grad():
        model.get_parameter("encoder.embeddings.token_type.weight").normal_()
        alone = MaskedTokensLoss(model)(batch)["mlm"].loss
        together = SentencePairsLoss(model)(batch)["mlm"].loss
        untyped = MaskedTokensLoss(model)(replace(batch, token_type_ids=None))["mlm"].loss
    torch.testing.assert_close(alone, together)
    assert abs(alone - untyped) > 1e-3


def test_a_batch_without_a_pair_gives_zero_and_no_nan() -> None:
    model, batch = make_model(), make_batch(SyntheticCorpus([2, 3, 2]))
    assert batch.num_pairs == 0
    loss = SentencePairsLoss(model)(batch)["pairs"].loss
    loss.backward()
    assert loss.item() == 0
    gradient = dict(model.named_parameters())["pair_head.classifier.weight"].grad
    assert gradient is not None
    assert not gradient.any()


def test_pairs_are_learned() -> None:
    """Tokens of the corpus count upwards, so where one text ends tells how the next begins."""
    recorder = Recorder()
    train = {"max_steps": 160, "batch_tokens": 512, "log_every_steps": 50}
    model = {"preset": "bert", "hidden_size": 32, "norm_position": "pre", "hidden_dropout": 0.0}
    trainer = make_trainer(
        None, recorder, train=train, model=model, optim={"learning_rate": 1e-2}, pairs="next"
    )
    trainer.fit()
    first, last = recorder.of("train")[0], recorder.of("train")[-1]
    assert first["pair_accuracy"] < 0.6
    assert last["pair_accuracy"] > 0.65
    assert last["pair_loss"] < 0.65


def test_masked_tokens_choose_among_candidates_and_pairs_do_not() -> None:
    model = make_model()
    batch = make_batch()
    everything = replace(batch, candidate_ids=torch.arange(64), candidate_offsets=torch.zeros(64))
    whole, chosen = SentencePairsLoss(model)(batch), SentencePairsLoss(model)(everything)
    for name in ("mlm", "pairs"):
        torch.testing.assert_close(whole[name].loss, chosen[name].loss)
