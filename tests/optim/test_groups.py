"""The groups of every preset, head and objective, by name."""

import re
from dataclasses import replace

import pytest
from torch import Tensor, nn

from maskwright.model.classifier import Classifier
from maskwright.model.config import HeadConfig, Pooling
from maskwright.model.electra import GeneratorAndDiscriminator, narrow_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model.presets import PRESETS
from maskwright.optim.groups import divide_parameters
from tests.models import small_config

WORDS = "encoder.embeddings.word.weight"
TYPES, POSITIONS = "encoder.embeddings.token_type.weight", "encoder.embeddings.position.weight"
DECODER, CLASSES = "head.decoder.weight", "pair_head.classifier.weight"
# Matrices of AdamW, and matrices of Muon outside the blocks, of each preset with a head for pairs.
GROUPS = {
    "bert": ([WORDS, POSITIONS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "modernbert": ([WORDS, CLASSES], ["head.transform.dense.weight"]),
    "eurobert": ([WORDS, DECODER, CLASSES], []),
    "roberta": ([WORDS, POSITIONS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "distilbert": ([WORDS, POSITIONS, CLASSES], ["head.transform.dense.weight"]),
    "megatron-bert": ([WORDS, POSITIONS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "roberta-prelayernorm": ([WORDS, POSITIONS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "esm": ([WORDS, CLASSES], ["head.transform.dense.weight"]),
    "jina_embeddings_v3": ([WORDS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "nomic_bert": ([WORDS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "gte": ([WORDS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "ultrabert": (
        [WORDS, DECODER, CLASSES],
        ["head.transform.input.weight", "head.transform.output.weight"],
    ),
    "electra": ([WORDS, POSITIONS, TYPES, CLASSES], ["head.transform.dense.weight"]),
    "neobert": ([WORDS, DECODER, CLASSES], []),
    "deberta-v2": (
        [WORDS, "encoder.relative.embedding.weight", CLASSES],
        ["head.transform.dense.weight"],
    ),
}


def divide(model: nn.Module) -> tuple[set[str], set[str]]:
    """The names of the tables, and of the hidden matrices outside of blocks; all others checked."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    groups = divide_parameters(names)
    assert sorted(map(id, names)) == sorted(id(p) for group in groups for p in group)
    assert {names[p] for p in groups.vectors} == {n for p, n in names.items() if p.ndim < 2}
    hidden = {names[p] for p in groups.hidden}
    in_blocks = {n for p, n in names.items() if p.ndim == 2 and re.search(r"\.blocks\.\d", n)}
    assert in_blocks <= hidden
    return {names[p] for p in groups.tables}, hidden - in_blocks


def test_every_preset_is_listed() -> None:
    assert set(GROUPS) == set(PRESETS)


@pytest.mark.parametrize("preset", GROUPS)
def test_divide_parameters_of_a_preset(preset: str) -> None:
    tables, hidden = GROUPS[preset]
    model = MaskedLanguageModel(replace(small_config(preset=preset), sentence_pair_head=True))
    assert divide(model) == (set(tables), {*hidden, "pair_head.pooler.weight"})


@pytest.mark.parametrize("disentangled", [False, True])
def test_divide_parameters_of_replaced_token_detection(disentangled: bool) -> None:
    config = small_config(preset="electra")
    tables, hidden = divide(
        GeneratorAndDiscriminator(config, narrow_config(config, 0.5), disentangled)
    )
    shared = {f"discriminator.{name}" for name in (WORDS, POSITIONS, TYPES)}
    deltas = {"deltas.word", "deltas.position", "deltas.token_type"} if disentangled else set()
    assert tables == {*shared, *deltas, "discriminator.head.output.weight"}
    assert hidden == {
        "discriminator.head.dense.weight",
        "generator.encoder.project.weight",
        "generator.head.transform.dense.weight",
    }


@pytest.mark.parametrize("pooling", ["cls", "bi"])
def test_divide_parameters_of_a_classifier(pooling: Pooling) -> None:
    head = HeadConfig("text", 3, pooling, "gelu", norm=True, bias=True, dropout=0.0)
    tables, hidden = divide(Classifier(small_config(preset="modernbert"), head))
    assert tables == {WORDS, "head.output.weight", *(["head.weigh.weight"] * (pooling == "bi"))}
    assert hidden == {"head.dense.weight"}
