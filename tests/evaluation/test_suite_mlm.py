"""Every figure of the suite ``mlm`` against a slow twin that looks at one prediction at a time."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.errors import InputError, ModelFolderError
from maskwright.evaluation import suite_mlm
from maskwright.evaluation.data import PINNED_MASKING, PinnedText
from maskwright.evaluation.suite_mlm import MASK_ONLY, WORD_MASKING, evaluate_mlm
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import evaluate_sources, predict_masked
from maskwright.objectives.scores import MASKED_LM_SCORES
from maskwright.runs.evaluation_file import DataFacts, SuiteResult
from tests.helpers import MASK, VOCAB_SIZE, SyntheticCorpus, random_corpus, special_ids, vocabulary
from tests.models import small_model

CORPUS = random_corpus(150)
# Rare and frequent tokens; of two equally frequent ones the smaller id is the better guess.
COUNTS = np.zeros(VOCAB_SIZE, np.int64)
COUNTS[5:] = [7, 3000, 3000, 12, *range(55)]
CHARACTERS = np.arange(VOCAB_SIZE) % 5 - 1  # -1: a blank
MODEL = small_model().eval()
with torch.no_grad():  # opinions of its own, and some right ones
    MODEL.encoder.embeddings.word.weight.mul_(30)
DATA: DataFacts = {"name": "numbers", "fingerprint": "0" * 64}


def make_text(corpus: SyntheticCorpus = CORPUS, num_positions: int = 10**6) -> PinnedText:
    config = DataConfig(max_seq_length=16)
    return PinnedText(corpus, config, special_ids(), vocabulary(COUNTS), num_positions)


def evaluate(text: PinnedText, model: MaskedLanguageModel = MODEL) -> SuiteResult:
    return evaluate_mlm(model, text, COUNTS, CHARACTERS, DATA)


@dataclass
class Prediction:
    """One hidden token as the twin sees it."""

    label: int
    seen: int
    word: int
    logits: list[float]

    @property
    def probabilities(self) -> list[float]:
        powers = [math.exp(logit - max(self.logits)) for logit in self.logits]
        return [power / sum(powers) for power in powers]

    @property
    def rank(self) -> int:
        order = sorted(range(len(self.logits)), key=lambda i: (-self.logits[i], i))
        return order.index(self.label) + 1


def list_predictions(masking: MaskingConfig) -> list[Prediction]:
    """Batch by batch, in the order of the text."""
    found: list[Prediction] = []
    for number, (batch, word_of_slot) in enumerate(make_text().batches_with_words(masking)):
        logits = predict_masked(MODEL, batch)
        slots = zip(batch.masked_positions, batch.masked_labels, logits, strict=True)
        for place, label, row in sorted(slots, key=lambda slot: int(slot[0])):
            if label != -100:
                word = 10**6 * number + int(word_of_slot[place])
                seen = int(batch.input_ids[place])
                found.append(Prediction(int(label), seen, word, row.double().tolist()))
    return found


@pytest.fixture(scope="module")
def tokens() -> list[Prediction]:
    return list_predictions(PINNED_MASKING)


@pytest.fixture(scope="module")
def result() -> SuiteResult:
    return evaluate(make_text())


@pytest.fixture(scope="module")
def values(result: SuiteResult) -> dict[str, float]:
    return {score.name: score.value for score in result.scores}


@pytest.fixture(scope="module")
def baselines(result: SuiteResult) -> dict[str, float | None]:
    return {score.name: score.baseline for score in result.scores}


def mean_of(predictions: list[Prediction], what: Callable[[Prediction], float]) -> float:
    return sum(map(what, predictions)) / len(predictions)


def loss_of(prediction: Prediction) -> float:
    return -math.log(prediction.probabilities[prediction.label])


def unigram_loss_of(prediction: Prediction) -> float:
    return -math.log((int(COUNTS[prediction.label]) + 1) / sum(int(n) + 1 for n in COUNTS))


def unigram_rank_of(prediction: Prediction) -> int:
    order = sorted(range(VOCAB_SIZE), key=lambda i: (-int(COUNTS[i]), i))
    return order.index(prediction.label) + 1


def test_loss_perplexity_and_bits(
    tokens: list[Prediction], values: dict[str, float], baselines: dict[str, float | None]
):
    assert len(tokens) > 500
    for loss, found in ((loss_of, values), (unigram_loss_of, baselines)):
        mean = mean_of(tokens, loss)
        text = [prediction for prediction in tokens if CHARACTERS[prediction.label] >= 0]
        assert len(text) < len(tokens)
        characters = sum(int(CHARACTERS[prediction.label]) for prediction in text)
        assert found["loss"] == pytest.approx(mean, rel=1e-5)
        assert found["perplexity"] == pytest.approx(math.exp(mean), rel=1e-4)
        bits = sum(map(loss, text)) / characters / math.log(2)
        assert found["bits_per_character"] == pytest.approx(bits, rel=1e-5)


def test_accuracies_and_reciprocal_ranks(
    tokens: list[Prediction], values: dict[str, float], baselines: dict[str, float | None]
):
    for rank_of, found in ((lambda p: p.rank, values), (unigram_rank_of, baselines)):
        ranks = [rank_of(prediction) for prediction in tokens]
        assert 1 in ranks
        for name, k in (("", 1), ("_top5", 5), ("_top10", 10)):
            share = sum(rank <= k for rank in ranks) / len(ranks)
            assert found[f"masked_accuracy{name}"] == pytest.approx(share, abs=1e-12)
        mean = sum(1 / rank for rank in ranks) / len(ranks)
        assert found["mean_reciprocal_rank"] == pytest.approx(mean, rel=1e-12)


def test_calibration(tokens: list[Prediction], values: dict[str, float]):
    bins: dict[int, list[Prediction]] = defaultdict(list)
    for prediction in tokens:
        bins[min(math.ceil(max(prediction.probabilities) * 15), 15)].append(prediction)
    assert len(bins) > 5
    error = 0.0
    for members in bins.values():
        confidence = mean_of(members, lambda p: max(p.probabilities))
        accuracy = mean_of(members, lambda p: p.rank == 1)
        error += abs(confidence - accuracy) * len(members) / len(tokens)
    assert values["calibration_error"] == pytest.approx(error, rel=1e-4)


def test_by_what_the_model_sees(tokens: list[Prediction], values: dict[str, float]):
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in tokens:
        kinds = {MASK: "mask", prediction.label: "kept"}
        groups[kinds.get(prediction.seen, "random")].append(prediction)
    assert {kind: len(group) / len(tokens) for kind, group in groups.items()} == pytest.approx(
        {"mask": 0.8, "random": 0.1, "kept": 0.1}, abs=0.05
    )
    for kind, group in groups.items():
        accuracy = mean_of(group, lambda p: p.rank == 1)
        assert values[f"seen_{kind}/masked_accuracy"] == pytest.approx(accuracy, abs=1e-12)
        assert values[f"seen_{kind}/loss"] == pytest.approx(mean_of(group, loss_of), rel=1e-5)
    top5 = mean_of(groups["mask"], lambda p: p.rank <= 5)
    assert values["seen_mask/masked_accuracy_top5"] == pytest.approx(top5, abs=1e-12)


def test_by_frequency(
    tokens: list[Prediction], values: dict[str, float], baselines: dict[str, float | None]
):
    groups: dict[int, list[Prediction]] = defaultdict(list)
    for prediction in tokens:
        count = int(COUNTS[prediction.label])
        groups[0 if count < 10 else 1 if count < 100 else 3].append(prediction)
    for decade, group in groups.items():
        name = f"frequency_1e{decade}"
        accuracy = mean_of(group, lambda p: p.rank == 1)
        assert values[f"{name}/masked_accuracy"] == pytest.approx(accuracy, abs=1e-12)
        guessed = mean_of(group, lambda p: unigram_rank_of(p) == 1)
        assert baselines[f"{name}/masked_accuracy"] == pytest.approx(guessed)
        assert values[f"{name}/loss"] == pytest.approx(mean_of(group, loss_of), rel=1e-5)
        seen = [prediction for prediction in group if prediction.seen == MASK]
        accuracy = mean_of(seen, lambda p: p.rank == 1)
        assert values[f"{name}/seen_mask_accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert "frequency_1e2/loss" not in values  # no token occurs 100 to 999 times


def test_whole_words(values: dict[str, float], baselines: dict[str, float | None]):
    predictions, words = list_predictions(WORD_MASKING), defaultdict(list)
    for prediction in predictions:
        assert prediction.seen == MASK
        words[prediction.word].append(prediction)
    assert len(words) > 100
    right = [all(p.rank == 1 for p in word) for word in words.values()]
    assert values["whole_words/word_accuracy"] == pytest.approx(sum(right) / len(words))
    split = [is_right for is_right, word in zip(right, words.values(), strict=True) if word[1:]]
    assert len(split) > 20
    assert values["whole_words/split_word_accuracy"] == pytest.approx(sum(split) / len(split))
    guessed = [all(unigram_rank_of(p) == 1 for p in word) for word in words.values()]
    assert baselines["whole_words/word_accuracy"] == pytest.approx(sum(guessed) / len(words))
    accuracy = mean_of(predictions, lambda p: p.rank == 1)
    assert values["whole_words/masked_accuracy"] == pytest.approx(accuracy)
    assert values["whole_words/loss"] == pytest.approx(mean_of(predictions, loss_of), rel=1e-5)


def test_a_word_of_which_a_part_is_seen_does_not_count():
    corpus = SyntheticCorpus([14] * 60)
    corpus.starts[:] = False  # segments of 14 tokens are one word, of which at most 9 are masked
    names = [score.name for score in evaluate(make_text(corpus)).scores]
    assert "whole_words/masked_accuracy" in names
    assert "whole_words/word_accuracy" not in names


def test_the_fast_path_of_training_agrees(values: dict[str, float], result: SuiteResult):
    batches = {"text": make_text().batches()}
    scores, _ = evaluate_sources(MODEL, batches, COUNTS, torch.device("cpu"))
    assert scores.num_predictions == result.scores[0].num_samples
    assert scores.loss == pytest.approx(values["loss"], rel=1e-6)
    assert scores.masked_accuracy == pytest.approx(values["masked_accuracy"])
    assert scores.masked_accuracy_top5 == pytest.approx(values["masked_accuracy_top5"])
    for line in MASKED_LM_SCORES:
        assert getattr(scores, line.name) == pytest.approx(values[line.suite_name]), line
    assert scores.unigram_loss == pytest.approx(result.scores[0].baseline)


def test_equal_logits_are_ranked_by_id():
    model = small_model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    result = evaluate(make_text(), model)
    values = {score.name: score.value for score in result.scores}
    labels = [prediction.label for prediction in list_predictions(PINNED_MASKING)]
    assert values["masked_accuracy"] == 0.0  # the first id is [PAD]
    assert values["masked_accuracy_top10"] == pytest.approx(np.mean(np.array(labels) < 10))
    assert values["calibration_error"] == pytest.approx(1 / VOCAB_SIZE, rel=1e-4)


def test_masks_are_named_and_logits_come_in_parts(
    result: SuiteResult, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(suite_mlm, "_LOGITS_AT_ONCE", 3 * VOCAB_SIZE)
    again = evaluate(make_text())
    assert again.settings == result.settings
    for score, other in zip(again.scores, result.scores, strict=True):
        assert score.value == pytest.approx(other.value, rel=1e-5)
    fewer = evaluate(make_text(num_positions=320))
    assert fewer.settings["masks_sha256"] != result.settings["masks_sha256"]
    assert fewer.settings["num_rows"] == 20


def test_all_scores_have_an_interval_around_them(result: SuiteResult):
    for score in result.scores:
        if score.name == "calibration_error":
            assert (score.low, score.high) == (None, None)
        elif score.num_samples > 100 and score.value > 0:
            assert score.low is not None, score.name
            assert score.high is not None, score.name
            assert score.low <= score.value <= score.high, score.name


def test_a_text_in_which_nothing_is_hidden():
    corpus = SyntheticCorpus([1])
    text = replace(make_text(), corpus=corpus)
    with pytest.raises(InputError, match="numbers is too short"):
        evaluate(text)


def test_the_same_tokens_behind_mask_alone(
    tokens: list[Prediction], values: dict[str, float], baselines: dict[str, float | None]
):
    hidden = list_predictions(MASK_ONLY)
    assert [one.label for one in hidden] == [one.label for one in tokens]
    assert {one.seen for one in hidden} == {MASK} != {one.seen for one in tokens}
    assert values["mask_only/loss"] == pytest.approx(mean_of(hidden, loss_of), rel=1e-5)
    for k, name in ((1, "masked_accuracy"), (5, "masked_accuracy_top5")):
        right = mean_of(hidden, lambda one, k=k: one.rank <= k)
        assert values[f"mask_only/{name}"] == pytest.approx(right)
        assert baselines[f"mask_only/{name}"] == baselines[name]
    assert baselines["mask_only/loss"] == baselines["loss"]


def test_a_damaged_model_has_no_scores():
    model = small_model().eval()
    with torch.no_grad():
        model.head.decoder.weight.fill_(float("nan"))
    with pytest.raises(ModelFolderError, match="no finite probabilities"):
        evaluate(make_text(), model)
