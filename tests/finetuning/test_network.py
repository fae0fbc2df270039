from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ConfigError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.network import (
    build_classifier,
    build_optimizers,
    check_pooling,
    compute_logits,
    group_parameters,
    rescaled_output,
)
from maskwright.model.config import Pooling
from maskwright.model.electra import Discriminator
from maskwright.model.init import initialize
from maskwright.model.masked_lm import HeadTransform
from maskwright.optim.eager import AdamW
from maskwright.optim.muon import Muon
from maskwright.tokenizer.template import ModelInput
from tests.model.helpers import tiny_model, with_pair_head

CONFIG = FinetuneConfig(layer_decay=0.5, learning_rate=1.0)


def test_the_encoder_is_a_copy_and_the_head_is_drawn_from_the_seed():
    model = tiny_model()
    one, again, other = (build_classifier(model, CONFIG, "text", 3, seed) for seed in (0, 0, 1))
    for name, parameter in model.encoder.named_parameters():
        copy = one.encoder.get_parameter(name)
        assert torch.equal(parameter, copy)
        assert parameter.data_ptr() != copy.data_ptr()
    assert torch.equal(one.head.output.weight, again.head.output.weight)
    assert not torch.equal(one.head.output.weight, other.head.output.weight)
    assert one.head.output.bias.tolist() == [0, 0, 0]


def test_what_pretraining_taught_a_head_is_kept():
    judged = with_pair_head(preset="bert")
    pooler = build_classifier(judged, CONFIG, "text", 2, 0).head.dense
    assert judged.pair_head is not None
    assert torch.equal(pooler.weight, judged.pair_head.pooler.weight)
    modern = tiny_model(preset="modernbert")
    head = build_classifier(modern, CONFIG, "text", 2, 0).head
    assert isinstance(modern.head.transform, HeadTransform)
    assert torch.equal(head.dense.weight, modern.head.transform.dense.weight)


def test_a_discriminator_is_fine_tuned_like_any_encoder():
    discriminator = Discriminator(tiny_model().config)
    initialize(discriminator, 0)
    model = build_classifier(discriminator, CONFIG, "token", 2, 0)
    assert torch.equal(
        model.encoder.embeddings.word.weight, discriminator.encoder.embeddings.word.weight
    )


def test_a_classifier_of_another_task_gives_all_but_its_output():
    first = build_classifier(tiny_model(preset="bert"), CONFIG, "text", 3, 0)
    second = build_classifier(first, CONFIG, "text", 2, 1)
    assert torch.equal(second.head.dense.weight, first.head.dense.weight)
    assert second.head.output.weight.shape != first.head.output.weight.shape
    tags = build_classifier(first, CONFIG, "token", 5, 0)
    for model in (second, tags):
        word = model.encoder.embeddings.word.weight
        assert torch.equal(word, first.encoder.embeddings.word.weight)


def test_a_pooling_is_refused_where_there_is_no_choice():
    """And where nothing is said it is the mean, if there is one."""
    bert, modern = tiny_model(preset="bert"), tiny_model(preset="modernbert")
    with pytest.raises(ConfigError, match=r"BertForSequence.*\. It has cls"):
        check_pooling(bert.config, "text", "mean")
    for pooling in (None, "cls"):
        check_pooling(bert.config, "text", pooling)
    with pytest.raises(ConfigError, match=r"It has cls and mean"):
        check_pooling(modern.config, "text", "late")
    with pytest.raises(ConfigError, match=r"labels each word by its first token"):
        check_pooling(modern.config, "token", "mean")
    for pooling in (None, "cls", "mean"):
        check_pooling(modern.config, "text", pooling)
        head = build_classifier(modern, replace(CONFIG, pooling=pooling), "text", 2, 0).head_config
        assert head.pooling == (pooling or "mean")
        head = build_classifier(bert, replace(CONFIG, pooling=None), "text", 2, 0).head_config
        assert head.pooling == "cls"


def test_texts_are_compared_only_where_there_are_two():
    config = replace(CONFIG, pooling="bi")
    assert config.choose_pooling(768, is_pair=True, is_number=False) == "bi"
    with pytest.raises(ConfigError, match="pooling = bi"):
        config.choose_pooling(256, is_pair=False, is_number=True)
    bert = tiny_model(preset="bert")
    check_pooling(bert.config, "text", "bi")
    with pytest.raises(ConfigError, match="pooling = bi"):
        check_pooling(bert.config, "token", "bi")


def test_texts_match_in_training_as_they_do_later():
    config = replace(CONFIG, pooling="bi")
    model = build_classifier(tiny_model(preset="eurobert"), config, "text", 1, 0)
    model.head.eval()
    assert model.head_config.dropout == CONFIG.dropout
    ids, types = torch.tensor([5, 6, 7, 5, 6]), torch.tensor([0, 0, 0, 1, 1])
    logits: list[torch.Tensor] = []
    for mode in (True, False):
        model.encoder.train(mode)
        logits.append(model(ids, context_from_lengths([5]), types))
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize(
    ("width", "is_pair", "is_number", "pooling"),
    [
        (256, True, True, "bi"),
        (257, True, True, None),
        (256, False, True, None),
        (256, True, False, None),
    ],
)
def test_a_narrow_encoder_compares_texts_to_grade_them(
    width: int, is_pair: bool, is_number: bool, pooling: Pooling | None
):
    assert FinetuneConfig().choose_pooling(width, is_pair, is_number) == pooling
    mean = FinetuneConfig(pooling="mean")
    assert mean.choose_pooling(width, is_pair, is_number) == "mean"


def test_lower_layers_learn_slower_and_every_parameter_is_in_one_group():
    model = build_classifier(tiny_model(), CONFIG, "text", 2, 0)
    groups = group_parameters(model, CONFIG)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    parameters = dict(model.named_parameters())
    assert sum(len(group["params"]) for group in groups) == len(parameters) == len(rates)
    layers = model.config.num_hidden_layers
    assert rates[id(parameters["head.output.weight"])] == 1
    assert rates[id(parameters["encoder.embeddings.word.weight"])] == 0.5 ** (layers + 1)
    for layer in range(layers):
        name = f"encoder.blocks.{layer}.mlp.output.weight"
        assert rates[id(parameters[name])] == 0.5 ** (layers - layer)
    assert decays[id(parameters["head.output.weight"])] == CONFIG.weight_decay
    assert decays[id(parameters["head.output.bias"])] == 0


def test_build_optimizers_gives_hidden_matrices_to_muon_at_rates_that_decay():
    model = build_classifier(tiny_model(), CONFIG, "text", 2, 0)
    config = replace(CONFIG, optimizer="muon", muon_learning_rate=0.01)
    adamw, *muons = build_optimizers(model, config, torch.device("cpu")).optimizers
    assert type(adamw) is AdamW
    assert {type(one) for one in muons} == {Muon}
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {
        names[p]: float(group["lr"])
        for one in muons
        for group in one.param_groups
        for p in group["params"]
    }
    others = [names[p] for group in adamw.param_groups for p in group["params"]]
    assert sorted([*rates, *others]) == sorted(names.values())
    assert all(n.startswith("encoder.blocks.") or n == "head.dense.weight" for n in rates)
    layers = model.config.num_hidden_layers
    for layer in range(layers):
        expected = 0.01 * 0.5 ** (layers - layer)
        assert rates[f"encoder.blocks.{layer}.mlp.output.weight"] == pytest.approx(expected)
    assert {"head.output.weight", "encoder.embeddings.word.weight"} <= {*others}


def test_an_output_says_numbers_as_they_were_and_learns_them_scaled():
    model = build_classifier(tiny_model(), CONFIG, "text", 1, 0).eval()
    ids, context = torch.tensor([5, 6, 7]), context_from_lengths([3])
    before = model.head.output.weight
    with torch.no_grad():
        scaled = model(ids, context)
        with rescaled_output(model, mean=10.0, deviation=3.0):
            assert model(ids, context).item() == pytest.approx(10 + 3 * scaled.item())
        assert torch.equal(model(ids, context), scaled)
    assert model.head.output.weight is before


def test_a_number_is_computed_in_full_precision():
    """In bf16 the years from 2000 to 2003 are one number."""
    inputs = [ModelInput([first, 6, 7], [0, 0, 0], 0) for first in range(5, 13)]
    examples = Examples(inputs, np.zeros(len(inputs)))
    found = {}
    for num_labels in (1, 2):
        model = build_classifier(tiny_model(), CONFIG, "text", num_labels, 0)
        with rescaled_output(model, mean=2000.0, deviation=1.0):
            found[num_labels] = [
                np.stack(compute_logits(model, examples, 0, precision))
                for precision in ("bf16", "fp32")
            ]
    rounded, exact = found[1]
    assert len(np.unique(exact)) == len(inputs)
    assert (rounded == exact).all()
    rounded, exact = found[2]  # labels are not numbers
    assert (rounded != exact).any()
