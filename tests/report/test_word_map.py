"""Frequent words: their nearest by cosine, their map, and what a model folder has of them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from maskwright.report.facts import gather_facts
from maskwright.report.run_page import render_page
from maskwright.report.word_map import WordVectors, read_words
from maskwright.tokenizer.tokenizer import Tokenizer


def make_words(count: int = 30) -> WordVectors:
    """Return words in two groups, whose embeddings point in two directions."""
    noise = np.random.default_rng(0).normal(0, 0.1, (count, 8))
    sides = np.where(np.arange(count) % 2, 1.0, -1.0)
    vectors = (noise + sides[:, None] * np.eye(8)[0]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return WordVectors([f"{'odd' if n % 2 else 'even'}{n}" for n in range(count)], vectors)


def test_list_nearest_names_words_of_the_same_group_with_their_cosine():
    words = make_words()
    found = dict(words.list_nearest())
    assert len(found) == len(set(found)) > 3
    for word, others in found.items():
        group = word.rstrip("0123456789")
        pairs = re.findall(r"(\w+?\d+) (-?[\d.]+)", others)
        assert len(pairs) == 5
        assert word not in dict(pairs)
        for other, score in pairs:
            assert other.startswith(group)
            one, two = (words.vectors[words.words.index(name)] for name in (word, other))
            cosine = torch.cosine_similarity(torch.tensor(one), torch.tensor(two), 0)
            assert float(score) == pytest.approx(float(cosine), abs=0.006)


def test_draw_parts_groups_along_the_first_component():
    svg = make_words().draw()
    places = re.findall(r'cx="([\d.]+)" cy="[\d.]+" r="2.5"><title>(\w+)<', svg)
    assert len(places) == 30
    sides = [{float(x) > 480 for x, name in places if name.startswith(kind)} for kind in
             ("odd", "even")]  # fmt: skip
    assert sorted(sides, key=str) == [{False}, {True}]
    evil = WordVectors(["<script>", "b", "c"], np.eye(3, dtype=np.float32))
    assert "<script>" not in evil.draw()


def test_read_words_has_frequent_words_of_the_text(workplace: Path):
    model = workplace / "runs" / "small" / "model"
    facts = gather_facts(workplace / "runs" / "small", "small")
    assert facts.words is not None
    tokenizer = Tokenizer.load(model)
    ids = np.array([tokenizer.token_id(word) for word in facts.words.words], np.int64)
    stored = load_file(model / "model.safetensors")
    tables = [one for name, one in stored.items() if "embed" in name and one.ndim == 2]
    [table] = [one for one in tables if len(one) == tokenizer.vocab_size]
    rows = table[ids] - table[ids].mean(0)
    np.testing.assert_allclose(
        facts.words.vectors, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5
    )


def test_read_words_returns_none_without_weights(workplace: Path, tmp_path: Path):
    model = workplace / "runs" / "small" / "model"
    (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    assert read_words(tmp_path, np.ones(1000, np.int64)) is None


def test_a_private_run_shows_no_words(workplace: Path, monkeypatch: pytest.MonkeyPatch):
    run = workplace / "runs" / "small"
    assert "Nearest words" in render_page([gather_facts(run, "small")])
    monkeypatch.setattr("maskwright.report.facts.read_yaml", lambda path: {"private": True})
    assert gather_facts(run, "small").words is None
