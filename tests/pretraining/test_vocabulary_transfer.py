"""A vocabulary that replaces a model's: ``--init-from`` with ``--replace-vocab``."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from maskwright.cli.main import main
from maskwright.model_folder.folder import open_model
from maskwright.pretraining.build import build_model
from maskwright.pretraining.init_from import load_initial
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.vocabulary_transfer import (
    count_usage,
    grow_vocabulary,
    match_tokens,
    mix_vocabulary,
    read_first_tokens,
    sparsemax,
    transfer_vocabulary,
)
from maskwright.runs.run_directory import load_run_config
from maskwright.shards.manifest import read_manifest
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.hub_folders import write_twin
from tests.models import small_model
from tests.pretraining.test_init_from import command
from tests.shards.helpers import write_prepared

WORDS, DECODER, BIAS = (
    "encoder.embeddings.word.weight",
    "head.decoder.weight",
    "head.decoder.bias",
)


@pytest.mark.parametrize("most", [1, 3, 4, 7, 100])
def test_the_first_tokens_are_read_across_shards(tmp_path: Path, most: int) -> None:
    write_prepared(tmp_path)
    whole = [7, 300, 9, 8, *[5] * 9, 6, 399]
    assert read_first_tokens(TokenStore.open(tmp_path, "train"), most).tolist() == whole[:most]


def trained(text: Path, kind: TokenizerKind = "wordpiece", size: int = 320) -> Tokenizer:
    lines = text.read_text(encoding="utf-8").splitlines()
    return train_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=size))


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_shared_tokens_keep_their_rows(
    model_type: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin, run = write_twin(tmp_path / "twin", model_type), tmp_path / "run"
    flags = ["--replace-vocab", "448", "--tokenizer.kind", "wordpiece"]
    assert main(command(text, twin, tmp_path, *flags)) == 0
    said = capsys.readouterr()
    config, [folder] = load_run_config(run, {}), (tmp_path / "data").iterdir()
    data, old = PreparedData(folder), open_model(twin)
    size = data.tokenizer.vocab_size
    assert (data.tokenizer.kind, config.model.vocab_size) == ("wordpiece", size)
    shared = match_tokens(old.tokenizer, data.tokenizer)
    assert len(shared) > 5
    assert f"{len(shared):,} tokens keep theirs" in said.err
    model = build_model(config, data, load_initial(config))
    new, before = dict(model.named_parameters()), dict(old.model.named_parameters())
    for token, origin in shared.items():
        assert torch.equal(new[WORDS][token], before[WORDS][origin])
    same = [name for name in before if before[name].shape == new[name].shape]
    assert len(same) > 10
    assert all(torch.equal(new[name], before[name]) for name in same)
    record = read_manifest(folder).source["tokenizer_extension"]
    assert record["vocab_size"] == size
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"replace a vocabulary of {old.tokenizer.vocab_size:,}" in card
    assert "that of" not in card
    assert main(["pretrain", str(folder), "--init-from", str(twin), "--print-config"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["tokenizer"]["replace_vocab"] == 448


def test_a_text_of_few_words_gives_one_size_everywhere(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the number asked for: the rows of tokens that no text gives would stay untrained."""
    twin, run = write_twin(tmp_path / "twin", "bert"), tmp_path / "run"
    assert main(command(text, twin, tmp_path, "--replace-vocab", "6000")) == 0
    told, model = capsys.readouterr(), open_model(run / "model")
    size = model.tokenizer.vocab_size
    assert size < 1000
    assert model.model.config.vocab_size == size
    config = load_run_config(run, {})
    assert (config.model.vocab_size, config.tokenizer.vocab_size) == (size, size)
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"vocabulary of {size}," in card
    assert f"Tokenizer: wordpiece, {size} tokens (of 6,000 asked for)" in card
    [shown] = re.findall(r"new tokens: (.*) …", told.out)
    words = [word for word in shown.split() if not word.startswith("##")]
    assert len(words) > 3
    assert [len(word) for word in words] == sorted(map(len, words), reverse=True)
    shutil.rmtree(tmp_path / "data")
    assert main(["pretrain", "--resume", str(run)]) == 0


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("other", ["wordpiece", "bpe", "unigram"])
def test_tokens_match_whatever_marks_a_word(
    kind: TokenizerKind, other: TokenizerKind, text: Path
) -> None:
    old, new = trained(text, kind, 512), trained(text, other, 512)
    matched = match_tokens(old, new)
    assert all(matched[n] == o for n, o in zip(new.role_ids, old.role_ids, strict=True))
    begins = {"wordpiece": "bi", "bpe": "Ġbi", "unigram": "▁bi"}
    pair = new.token_id(begins[other]), old.token_id(begins[kind])
    assert pair[0] is not None
    assert matched[pair[0]] == pair[1]
    if kind == other:
        assert set(new.ordinary_ids.tolist()) <= matched.keys()


def test_a_new_token_begins_as_those_used_alike(text: Path) -> None:
    """Of 40 words in two kinds of context, the old vocabulary lacks one of each kind."""
    kinds = [[f"{letter}{n}" for n in "abcdefghijklmnopqrst"] for letter in "xy"]
    around = [["left", "over"], ["right", "under"]]
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(4000):
        kind = int(rng.integers(2))
        lines.append(" ".join([around[kind][0], rng.choice(kinds[kind]), around[kind][1]]))
    config = TokenizerConfig(vocab_size=256)
    old = train_tokenizer([line for line in lines if "xa" not in line and "ya" not in line], config)
    new = train_tokenizer(lines, config)
    ids = np.concatenate([new.encode(line).ids for line in lines]).astype(np.int64)
    transfer = transfer_vocabulary(old, new, ids)
    for kind, word in enumerate(("xa", "ya")):
        token = new.token_id(word)
        assert token is not None
        assert old.token_id(word) is None
        origins, weights = transfer.sources[token]
        assert sum(weights) == pytest.approx(1, abs=1e-5)
        alike = sum(
            weight
            for origin, weight in zip(origins, weights, strict=True)
            if old.token(origin) in kinds[kind]
        )
        assert alike > 0.9


def test_what_never_occurs_is_used_like_nothing() -> None:
    usage = count_usage(np.array([5, 6, 5, 7, 6, 5] * 20), 9)
    length = np.linalg.norm(usage, axis=1)
    assert np.allclose(length[[5, 6, 7]], 1, atol=1e-5)
    assert not usage[[0, 1, 2, 3, 4, 8]].any()


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 30)),
        elements=st.floats(-9, 9, width=32),
    )
)
def test_sparsemax_gives_probabilities_in_the_order_of_the_scores(scores: np.ndarray) -> None:
    found = sparsemax(scores)
    assert np.allclose(found.sum(1), 1, atol=1e-4)
    assert (found >= 0).all()
    for row, score in zip(found, scores, strict=True):
        assert (np.diff(row[np.argsort(score, kind="stable")]) >= -1e-6).all()


def test_mistakes(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = write_twin(tmp_path / "twin", "bert")
    assert main(["pretrain", str(text), "--replace-vocab", "512"]) == 2
    assert "tokenizer.replace_vocab = 512 needs a tokenizer" in capsys.readouterr().err
    both = ["--replace-vocab", "512", "--extend-vocab", "8"]
    assert main(command(text, twin, tmp_path, *both)) == 2
    assert "tokenizer.replace_vocab = 512" in capsys.readouterr().err
    assert main(command(text, twin, tmp_path, "--replace-vocab", "3")) == 2
    assert "replace_vocab = 3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_means(tied: bool) -> None:
    model = small_model(preset="modernbert", tie_word_embeddings=tied)
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    tensors[BIAS].normal_()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    pieces = {60: [7], 64: [7, 9], 65: [10, 11, 12]}
    grown = grow_vocabulary(tensors, 128, pieces)
    tables = {WORDS, BIAS} if tied else {WORDS, DECODER, BIAS}
    for name, old in kept.items():
        assert torch.equal(tensors[name], old)
        if name not in tables:
            assert torch.equal(grown[name], old)
            continue
        assert grown[name].shape == (128, *old.shape[1:])
        assert torch.equal(grown[name][:60], old[:60])
        assert torch.equal(grown[name][61:64], old[61:])
        assert torch.equal(grown[name][60], old[7])
        assert torch.allclose(grown[name][64], (old[7] + old[9]) / 2)
        assert torch.allclose(grown[name][65], (old[10] + old[11] + old[12]) / 3)
        assert torch.allclose(grown[name][66:], old.mean(0).expand(62, *old.shape[1:]))


@pytest.mark.parametrize("tied", [True, False])
def test_the_bias_of_a_token_follows_it(tied: bool) -> None:
    model = small_model(preset="bert", tie_word_embeddings=tied)
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    tensors[BIAS][7] = 50.0
    mixed = mix_vocabulary(tensors, 40, {3: ([7], [1.0]), 4: ([7, 8], [0.5, 0.5])})
    assert mixed[BIAS][[3, 4]].tolist() == [50.0, 25.0]
    assert (DECODER in mixed) is not tied
