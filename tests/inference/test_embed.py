"""Search finds the nearest texts, whatever blocks they are read in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskwright.attention_context import context_from_lengths
from maskwright.errors import InputError, ModelFolderError
from maskwright.inference.embed import Embedder, Pooling, embed, search
from maskwright.model_folder.folder import save_model
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import WORDS, tiny_tokenizer
from tests.runs.hub import write_modules

TEXTS = ["the cat sat", "", "a bird flew under the tree", "zebra", "the cat sat"]
LONGEST = 16  # of the model, [CLS] and [SEP] included


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def make(tokenizer: Tokenizer, pooling: Pooling = "mean", normalize: bool = True) -> Embedder:
    model = tiny_model(local_attention=4)
    return Embedder.from_parts(model, tokenizer, pooling=pooling, normalize=normalize)


def embed_slowly(embed: Embedder, text: str) -> NDArray[np.float32]:
    """The twin to read: one text, no padding, the vectors of all tokens."""
    ids = embed.tokenizer.encode(text, split_special_tokens=False).ids.tolist()
    ids = [2, *ids[: LONGEST - 2], 3]
    with torch.no_grad():
        hidden = embed.model.encoder(torch.tensor(ids), context_from_lengths([len(ids)])).numpy()
    vector = hidden[0] if embed.pooling == "cls" else hidden.mean(0)
    return vector / np.linalg.norm(vector) if embed.normalize else vector


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_any_batch_gives_the_vectors_of_the_slow_twin(
    tokenizer: Tokenizer, pooling: Pooling, normalize: bool
):
    embed = make(tokenizer, pooling, normalize)

    @settings(max_examples=20)
    @given(
        st.lists(st.lists(st.sampled_from([*WORDS, "zebra"]), max_size=20), max_size=12),
        st.integers(1, 200),
    )
    def check(sentences: list[list[str]], batch_tokens: int) -> None:
        texts = [" ".join(words) for words in sentences]
        vectors = embed(texts, batch_tokens)
        assert (vectors.dtype, vectors.shape) == (np.float32, (len(texts), 32))
        for text, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, embed_slowly(embed, text), atol=1e-5)

    check()


def test_one_text_is_a_list_of_one(tokenizer: Tokenizer):
    embed = make(tokenizer)
    assert np.array_equal(embed("the cat"), embed(["the cat"]))
    assert embed([]).shape == (0, 32)


def test_long_texts_are_cut_with_their_end_kept_and_counted(tokenizer: Tokenizer):
    embed = make(tokenizer)
    fits, cut = " ".join(["cat"] * 14), " ".join(["cat"] * 14 + ["dog"] * 50)
    first, second = embed([fits, cut])
    assert embed.num_cut == 1
    np.testing.assert_allclose(first, second, atol=1e-6)
    embed([cut, cut])
    assert embed.num_cut == 3


def test_a_folder_may_have_a_shorter_limit(tokenizer: Tokenizer, tmp_path: Path):
    save_model(tmp_path, tiny_model(), tokenizer)
    assert Embedder(tmp_path, "cpu").longest == LONGEST
    for said, longest in ((8, 8), (512, LONGEST)):
        (tmp_path / "sentence_bert_config.json").write_text(f'{{"max_seq_length": {said}}}')
        assert Embedder(tmp_path, "cpu").longest == longest


def test_special_tokens_in_a_text_are_recognized(tokenizer: Tokenizer):
    embed = make(tokenizer)
    text = "cat[SEP]dog [MASK]"
    ids = tokenizer.encode(text, split_special_tokens=False).ids.tolist()
    assert tokenizer.tokens(ids) == ["cat", "[SEP]", "dog", "[MASK]"]
    np.testing.assert_allclose(embed(text)[0], embed_slowly(embed, text), atol=1e-5)


def test_a_text_without_tokens(tokenizer: Tokenizer):
    embed = make(tokenizer)
    np.testing.assert_allclose(embed("")[0], embed_slowly(embed, ""), atol=1e-5)
    bare = Embedder.from_parts(tiny_model(), tokenizer, add_special_tokens=False)
    vectors = bare(["", "cat", " "])
    assert (vectors != 0).any(axis=1).tolist() == [False, True, False]


def test_a_stream_is_the_same_as_a_list(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("maskwright.inference.text_model._MAX_TEXTS", 2)
    embed = make(tokenizer)
    parts = list(embed.stream(iter(TEXTS)))
    assert [len(part) for part in parts] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(parts), embed(TEXTS), atol=1e-6)


def test_a_folder_of_sentence_transformers_names_its_pooling(tokenizer: Tokenizer, tmp_path: Path):
    save_model(tmp_path / "model", tiny_model(), tokenizer)
    write_modules(tmp_path / "model", {"pooling_mode": "cls"})
    expected = Embedder(tmp_path / "model", "cpu", "cls")(TEXTS)
    assert np.array_equal(Embedder(tmp_path / "model", "cpu")(TEXTS), expected)
    embed(tmp_path / "model", TEXTS, out=tmp_path / "vectors.npy", device="cpu")
    assert np.array_equal(np.load(tmp_path / "vectors.npy"), expected)
    write_modules(tmp_path / "model", {"pooling_mode": "cls"}, "Dense")
    with pytest.raises(ModelFolderError, match="Dense"):
        Embedder(tmp_path / "model", "cpu")
    assert np.array_equal(Embedder(tmp_path / "model", "cpu", "cls")(TEXTS), expected)


def test_a_pooling_that_does_not_exist(tokenizer: Tokenizer):
    options: dict[str, Any] = {"pooling": "max"}
    with pytest.raises(InputError, match="pooling = max must be mean or cls"):
        Embedder.from_parts(tiny_model(), tokenizer, **options)


def test_vectors_that_are_no_numbers(tokenizer: Tokenizer):
    embed = make(tokenizer)
    with torch.no_grad():
        embed.model.encoder.embeddings.word.weight[6] = float("nan")
    with pytest.raises(ModelFolderError, match="no finite vectors"):
        embed(["cat a dog the bird fish"])


QUERIES = ["The small horse", "a cat eats fish"]
SEARCHED = ["The big horse.", " ", "A bird.", "the cat", "", "The big horse.", "every day", "seeds"]


@pytest.fixture
def run(workplace: Path) -> Path:
    return workplace / "runs" / "small"


@pytest.mark.parametrize("block", [1, 2, 3, 100])
@pytest.mark.parametrize("top", [1, 3, 100])
def test_the_nearest_texts_are_found_in_any_blocks(
    block: int, top: int, run: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("maskwright.inference.text_model._MAX_TEXTS", block)
    found = search(run, QUERIES, iter(SEARCHED), top=top)
    embed = Embedder(run)
    numbers = [number for number, text in enumerate(SEARCHED, 1) if text.strip()]
    cosines = embed(QUERIES) @ embed([SEARCHED[number - 1] for number in numbers]).T
    for matches, row in zip(found, cosines, strict=True):
        order = np.argsort(-row.round(5), kind="stable")[:top]  # equal texts: the earlier first
        assert [match.number for match in matches] == [numbers[place] for place in order]
        assert [match.text for match in matches] == [SEARCHED[n.number - 1] for n in matches]
        assert [match.score for match in matches] == pytest.approx(row[order].tolist(), abs=1e-5)


def test_one_query_is_a_list_of_one(run: Path):
    [[best]] = search(run, "the cat", SEARCHED, top=1, pooling="cls", batch_tokens=8)
    assert (best.number, best.text) == (4, "the cat")
    assert best.score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("queries", "texts", "options", "named"),
    [
        ("", SEARCHED, {}, "query"),
        ([], SEARCHED, {}, "query"),
        (["a", " "], SEARCHED, {}, "query"),
        ("a", [], {}, "no text"),
        ("a", ["", " "], {}, "no text"),
        ("a", SEARCHED, {"top": 0}, "--top = 0"),
        ("a", SEARCHED, {"batch_tokens": 0}, "--batch-tokens = 0"),
        ("a", SEARCHED, {"pooling": "max"}, "pooling = max"),
    ],
)
def test_mistakes(queries: Any, texts: list[str], options: dict[str, Any], named: str, run: Path):
    with pytest.raises(InputError, match=named):
        search(run, queries, texts, **options)
