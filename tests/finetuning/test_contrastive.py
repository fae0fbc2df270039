"""Losses of texts that belong together, and of TSDAE: those of their slow twins, and of others."""

import json
import math
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from maskwright.finetuning.examples import collate, encode_texts
from maskwright.finetuning.pair_losses import (
    TEMPERATURE,
    cosent_loss,
    find_same,
    matryoshka_loss,
    mine_negatives,
    multiple_negatives_loss,
    number_texts,
    overlap,
)
from maskwright.finetuning.tsdae import TsdaeDecoder, delete_tokens
from maskwright.model.encoder import EncoderBlock
from maskwright.model_folder.folder import save_model
from maskwright.tokenizer.template import ModelInput
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded

TEXT_PAIRS = st.lists(st.tuples(*[st.sampled_from("ABCDEFG")] * 2), min_size=1, max_size=8)


def encode(texts: list[str]) -> list[ModelInput]:
    return [ModelInput([ord(letter) for letter in text], [0] * len(text), 0) for text in texts]


def find_same_slowly(pairs: list[tuple[str, str]]) -> list[list[bool]]:
    return [[not set(one).isdisjoint(other) for other in pairs] for one in pairs]


def contrast_slowly(first: Tensor, second: Tensor, same: list[list[bool]]) -> float:
    """Sums over what each text is compared with: its own, and all that are not the same."""
    total, count = 0.0, len(first)
    for left, right in ((first, second), (second, first)):
        for i in range(count):
            logits = {
                j: torch.cosine_similarity(left[i], right[j], dim=0).item() / TEMPERATURE
                for j in range(count)
                if i == j or not same[i][j]
            }
            total += math.log(sum(map(math.exp, logits.values()))) - logits[i]
    return total / (2 * count)


def find(pairs: list[tuple[str, str]]) -> Tensor:
    return find_same(encode([a for a, _ in pairs]), encode([b for _, b in pairs]))


@given(TEXT_PAIRS)
def test_pairs_are_the_same_if_they_share_any_text(pairs: list[tuple[str, str]]):
    same = find(pairs)
    assert same.tolist() == find_same_slowly(pairs)
    assert torch.equal(same, same.T)
    assert same.diagonal().all()


@given(TEXT_PAIRS, st.integers(0, 9))
def test_the_loss_is_that_of_its_slow_twin(pairs: list[tuple[str, str]], seed: int):
    torch.manual_seed(seed)
    first, second = torch.randn(2, len(pairs), 4, dtype=torch.float64)
    found = multiple_negatives_loss(first, second, find(pairs)).item()
    assert found == pytest.approx(contrast_slowly(first, second, find_same_slowly(pairs)))


def test_a_negative_that_is_right_is_not_counted():
    torch.manual_seed(0)
    first, second, negatives = torch.randn(3, 4, 8)
    plain = multiple_negatives_loss(first, second)
    right = torch.ones(4, 4, dtype=torch.bool)
    ignored = multiple_negatives_loss(first, second, None, negatives, right)
    assert ignored.item() == pytest.approx(plain.item())
    assert multiple_negatives_loss(first, second, None, negatives).item() > plain.item()


class Vectors(torch.nn.Module):
    """A model of sentence-transformers whose vectors are its inputs."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def __getitem__(self, _: int) -> "Vectors":
        return self


def test_losses_equal_those_of_sentence_transformers():
    losses: Any = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    torch.manual_seed(1)
    first, second, negatives = torch.randn(3, 6, 8)
    scores = torch.tensor([0.1, 0.9, 0.4, 0.4, 0.7, 0.0])
    features = [{"vectors": x} for x in (first, second, negatives)]
    ranking = losses.MultipleNegativesRankingLoss(Vectors(), scale=1 / TEMPERATURE)
    theirs = ranking(features[:2], None), ranking([features[1], features[0]], None)
    assert multiple_negatives_loss(first, second).item() == pytest.approx(
        torch.stack(theirs).mean().item(), rel=1e-5
    )
    forward = 2 * multiple_negatives_loss(first, second, None, negatives) - theirs[1]
    assert forward.item() == pytest.approx(ranking(features, None).item(), rel=1e-5)
    cosent = losses.CoSENTLoss(Vectors(), scale=1 / TEMPERATURE)
    assert cosent_loss(first, second, scores).item() == pytest.approx(
        cosent(features[:2], scores).item(), rel=1e-5
    )


def test_nested_vectors_have_the_mean_loss_of_their_beginnings():
    torch.manual_seed(2)
    first, second = torch.randn(2, 5, 8)
    loss = multiple_negatives_loss
    expected = (loss(first, second) + loss(first[:, :2], second[:, :2])) / 2
    found = matryoshka_loss(loss, (2,), first, second)
    assert found.item() == pytest.approx(expected.item())
    assert matryoshka_loss(loss, (), first, second).item() == loss(first, second).item()


def test_mined_negatives_are_near_and_wrong():
    """Twenty texts on a circle: the nearest ones are passed over, a shared text is never taken."""
    angles = torch.arange(20) * 2 * math.pi / 20
    vectors = torch.stack((angles.cos(), angles.sin()), 1)
    inputs = encode([chr(65 + n) for n in range(20)]), encode([chr(97 + n) for n in range(20)])
    numbers = number_texts(*inputs)
    rows = mine_negatives(vectors, vectors, numbers)
    distance = [min(abs(row - n), 20 - abs(row - n)) for n, row in enumerate(rows)]
    assert set(distance) == {3}
    few = mine_negatives(vectors[:2], vectors[:2], [column[:2] for column in numbers])
    assert few == [1, 0]
    same = overlap(numbers, numbers)
    assert same.sum() == 20
    assert torch.equal(F.one_hot(torch.arange(20)).bool(), same)


TEXTS = ["the cat see the dog under the tree", "dog", "she see"]
INPUTS = encode_texts([(text,) for text in TEXTS], TOKENIZER, 64)[0]


def test_forty_percent_of_the_tokens_are_left():
    draws = [delete_tokens(INPUTS, 2) for _ in range(50)]
    for whole, size, kept in zip(INPUTS, (3, 1, 1), zip(*draws, strict=True), strict=True):
        for one in kept:
            assert len(one.ids) == len(one.type_ids) == size + 2
            assert (one.ids[0], one.ids[-1], one.first) == (TOKENIZER.cls_id, TOKENIZER.sep_id, 1)
            rest = iter(whole.ids)
            assert all(token in rest for token in one.ids)  # in their order
        assert {token for one in kept for token in one.ids} == {*whole.ids}


def attend(block: EncoderBlock, x: Tensor, vector: Tensor, linear: nn.Linear) -> Tensor:
    """Causal self-attention, and multi-head attention to one vector, by torch's own class."""
    size, (heads, _) = x.shape[-1], block.attention.heads_and_size
    own, other = (nn.MultiheadAttention(size, heads, batch_first=True) for _ in "ab")
    for layer, weight, bias, output in (
        (own, block.attention.qkv.weight, block.attention.qkv.bias, block.attention.output),
        (other, torch.eye(size).repeat(3, 1), torch.zeros(3 * size), linear),
    ):
        layer.load_state_dict(
            {
                "in_proj_weight": weight,
                "in_proj_bias": bias,
                "out_proj.weight": output.weight,
                "out_proj.bias": output.bias,
            }
        )
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    return own(x, x, x, attn_mask=later)[0] + other(x, vector[None], vector[None])[0]


def test_the_loss_is_that_of_cross_attention_to_one_vector():
    model = make_loaded().model.eval()
    decoder, generator = TsdaeDecoder(model), torch.Generator().manual_seed(0)
    for parameter in decoder.maps.parameters():
        nn.init.normal_(parameter, generator=generator)
    vectors = torch.randn(len(INPUTS), 32, generator=generator)
    batch = collate(INPUTS, TOKENIZER.pad_id)
    losses: list[Tensor] = []
    for one, vector in zip(INPUTS, vectors, strict=True):
        ids = torch.tensor(one.ids)
        x = model.encoder.embeddings(ids, torch.arange(len(ids)))
        for block, linear in zip(model.encoder.blocks, decoder.maps, strict=True):
            assert isinstance(block, EncoderBlock)
            assert isinstance(linear, nn.Linear)
            x = block.attention_norm(x + attend(block, x, vector, linear))
            x = block.mlp_norm(x + block.mlp(x))
        losses.append(F.cross_entropy(model.head(x)[:-1], ids[1:], reduction="none"))
    found = decoder(model, batch, vectors)
    assert found.item() == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_text_of_one_token_has_no_loss():
    model = make_loaded().model
    batch = collate([ModelInput([TOKENIZER.cls_id], [0], 0)], TOKENIZER.pad_id)
    assert TsdaeDecoder(model)(model, batch, torch.zeros(1, 32)) == 0


def test_a_model_learns_from_text_and_is_saved_without_the_decoder(tmp_path: Path, cli: Cli):
    model, text, out = tmp_path / "model", tmp_path / "notes.txt", tmp_path / "out"
    save_model(model, make_loaded().model, TOKENIZER)
    words = ("cat", "dog", "tree", "log", "bed", "see")
    lines = [" ".join([*three, "and the", *three]) for three in permutations(words, 3)]
    text.write_text("\n".join(lines))
    command = ["finetune", str(model), "--task", "embedding", "--objective", "tsdae"]
    flags = ["--epochs", "6", "--batch_size", "16", "--dropout", "0", "--patience", "0"]
    assert "TSDAE" in cli(*command, "--train", text, "--out", out, *flags)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0] - 0.5
    results = json.loads((out / "results.json").read_text())
    assert {"recall_10", "mrr"} <= results.keys() & results["before"].keys()
    before, after = (load_file(folder / "model.safetensors") for folder in (model, out / "model"))
    assert before.keys() == after.keys()
    table = tmp_path / "pairs.tsv"
    table.write_text("query\tpassage\n" + "\n".join(f"{line}\tthe {line}" for line in lines))
    for file, more, field in (
        (table, [], "objective = tsdae"),
        (text, ["--dimensions", "8"], "objective = tsdae"),
        (text, ["--negatives", "mined"], "objective = tsdae"),
    ):
        given = [*command, "--train", str(file), "--out", str(tmp_path / "no")]
        assert field in cli.refuse(*given, *more)
