"""`SentenceTransformer` of sentence-transformers and `Embedder` on the same weights agree."""

from pathlib import Path

import numpy as np
import pytest

from maskwright.inference.embed import Embedder, Pooling
from maskwright.model_folder.folder import save_model
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer

library = pytest.importorskip("sentence_transformers")

TEXTS = [
    "the cat sat on a tree",
    "",
    "zebra",
    "The DOG ran under the tree, unknown!",
    "word1 word2 " * 30,  # longer than the model
    "the cat [MASK] a[SEP]tree [CLS] [PAD] cat, [UNK].",  # special tokens written in a text
    "[MASK]",
]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
def test_vectors_are_those_of_sentence_transformers(
    preset: str, pooling: Pooling, tmp_path: Path
) -> None:
    from sentence_transformers.sentence_transformer import modules

    folder = str(tmp_path / "model")
    save_model(folder, tiny_model(preset=preset), tiny_tokenizer(tmp_path / "tokenizer"))
    transformer = modules.Transformer(folder)
    pool = modules.Pooling(transformer.get_embedding_dimension(), pooling)
    theirs = library.SentenceTransformer(modules=[transformer, pool], device="cpu")
    for normalize in (True, False):
        ours = Embedder(folder, "cpu", pooling, normalize)
        expected = theirs.encode(TEXTS, normalize_embeddings=normalize)
        np.testing.assert_allclose(ours(TEXTS), expected, atol=1e-5)
        assert ours.num_cut == 1
