"""TSDAE: deleted tokens, the loss beside plain torch, and a model that is saved alone."""

import json
from itertools import permutations
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from maskwright.cli.main import main
from maskwright.finetuning.batches import collate
from maskwright.finetuning.denoising import Decoder, delete_tokens
from maskwright.finetuning.examples import encode_texts
from maskwright.model.encoder import EncoderBlock
from maskwright.model_folder.folder import save_model
from maskwright.tokenizer.template import ModelInput
from tests.finetuning.helpers import TOKENIZER, make_loaded

TEXTS = ["the cat see the dog under the tree", "dog", "she see"]
INPUTS = encode_texts([(text,) for text in TEXTS], TOKENIZER, 64)[0]


def test_forty_percent_of_the_tokens_are_left() -> None:
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


def test_the_loss_is_that_of_cross_attention_to_one_vector() -> None:
    model = make_loaded().model.eval()
    decoder, generator = Decoder(model), torch.Generator().manual_seed(0)
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


def test_a_text_of_one_token_has_no_loss() -> None:
    model = make_loaded().model
    batch = collate([ModelInput([TOKENIZER.cls_id], [0], 0)], TOKENIZER.pad_id)
    assert Decoder(model)(model, batch, torch.zeros(1, 32)) == 0


def test_a_model_learns_from_text_and_is_saved_without_the_decoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text, out = tmp_path / "model", tmp_path / "notes.txt", tmp_path / "out"
    save_model(model, make_loaded().model, TOKENIZER)
    words = ("cat", "dog", "tree", "log", "bed", "see")
    lines = [" ".join([*three, "and the", *three]) for three in permutations(words, 3)]
    text.write_text("\n".join(lines))
    command = ["finetune", str(model), "--task", "embedding", "--objective", "tsdae"]
    flags = ["--epochs", "6", "--batch_size", "16", "--dropout", "0", "--patience", "0"]
    assert main([*command, "--train", str(text), "--out", str(out), *flags]) == 0
    assert "TSDAE" in capsys.readouterr().out
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
        assert main([*given, *more]) == 2
        assert field in capsys.readouterr().err
