"""Export to GGUF: the file holds our tensors and tokens, and llama.cpp computes our vectors."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.errors import ExportError
from maskwright.interop.export import export
from maskwright.interop.gguf import FILE, find_architecture, write_file
from maskwright.interop.vector_source import VectorSource
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.interop.models import NATIVE, OWN, write_model

library: Any = pytest.importorskip("gguf")
LAYERS = {"num_hidden_layers": 3}
EVERY_LAYER = {"layer_types": ("sliding_attention", "full_attention", "sliding_attention")}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {**NATIVE["bert"], **LAYERS},
    "roberta": {"preset": "roberta", **LAYERS},
    "modernbert": {**NATIVE["modernbert"], **LAYERS},
    "other layers": {"preset": "modernbert", "local_attention": 7, **EVERY_LAYER, **LAYERS},
    "eurobert": {**NATIVE["eurobert"], **LAYERS},
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "wordpiece": {"kind": "wordpiece"},
    "uncased": {"kind": "wordpiece", "lowercase": True},
    "bpe": {"kind": "bpe"},
}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    texts = [text for _, text in islice(read_pydocs(), 60)]
    return {
        name: train_tokenizer(texts, TokenizerConfig(vocab_size=512, **fields))
        for name, fields in KINDS.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_holds_our_tensors_and_tokens(
    shape: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
):
    tokenizer = tokenizers["wordpiece"]
    folder = write_model(tmp_path / "model", SHAPES[shape], tokenizer=tokenizer)
    source = VectorSource(folder, None)
    write_file(tmp_path / FILE, source)
    reader = library.GGUFReader(tmp_path / FILE)
    found = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    encoder = source.model.encoder
    assert sum(map(np.size, found.values())) == sum(p.numel() for p in encoder.parameters())
    word = encoder.embeddings.word.weight.detach().numpy()
    np.testing.assert_array_equal(found["token_embd.weight"], word)
    qkv = encoder.get_parameter("blocks.1.attention.qkv.weight").detach()
    theirs = (
        [found["blk.1.attn_qkv.weight"]]
        if "blk.1.attn_qkv.weight" in found
        else [found[f"blk.1.attn_{part}.weight"] for part in "qkv"]
    )
    torch.testing.assert_close(torch.tensor(np.concatenate(theirs)), qkv, atol=0, rtol=0)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == source.model.config.vocab_size
    for piece, marked in (("the", "▁the"), ("##ing", "ing"), ("[MASK]", "[MASK]")):
        token_id = tokenizer.token_id(piece)
        assert token_id is not None
        assert tokens[token_id] == marked


@pytest.mark.parametrize(
    ("shape", "kind"), [*((s, "wordpiece") for s in SHAPES), *(("bert", k) for k in KINDS)]
)
def test_llama_cpp_computes_our_vectors(
    shape: str, kind: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
):
    pytest.importorskip("llama_cpp")
    folder = write_model(tmp_path / "model", SHAPES[shape], tokenizer=tokenizers[kind])
    result = export(folder, "gguf", tmp_path / "out")
    assert result.comparison.largest <= 1e-4
    assert result.comparison.num_texts >= 26
    assert set(result.files) == {FILE, "README.md"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (OWN, "positions = sinusoidal"),
        ({"preset": "esm"}, "gated_mlp = False"),
        ({"preset": "bert", "hidden_act": "relu"}, "hidden_act = relu"),
        ({"preset": "modernbert", "mlp_bias": True}, "no biases"),
    ],
)
def test_what_llama_cpp_does_not_compute_is_refused(
    fields: dict[str, Any], reason: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
):
    folder = write_model(tmp_path / "model", fields, tokenizer=tokenizers["wordpiece"])
    with pytest.raises(ExportError, match=reason):
        find_architecture(VectorSource(folder, None).model.config)
    with pytest.raises(ExportError, match="onnx"):
        export(folder, "gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_tokenizers_are_refused(tmp_path: Path):
    folder = write_model(tmp_path / "model", NATIVE["bert"])
    with pytest.raises(ExportError, match="tokenizer is character"):
        export(folder, "gguf", tmp_path / "out")
