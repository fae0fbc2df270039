"""Export to GGUF, the file format of llama.cpp, for vectors of texts.

llama.cpp computes the encoders of BERT, ModernBERT and EuroBERT, without the head, and the mean of
the token vectors or that of the first token. Tensors get the names that the library `gguf` has for
those of transformers, and keep fp32; ``llama-quantize`` makes them smaller.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.errors import ExportError
from maskwright.interop.classifier_source import Source
from maskwright.interop.comparison import OutputComparison
from maskwright.interop.targets import Written, import_library
from maskwright.interop.transformers import list_judges
from maskwright.interop.vector_source import VectorSource
from maskwright.model.config import EncoderConfig
from maskwright.model_folder.families import FAMILIES, choose_headless
from maskwright.model_folder.folder import CARD, adapt_card
from maskwright.model_folder.model_card import HubMetadata
from maskwright.model_folder.native.family import Family
from maskwright.model_folder.native.own import OWN
from maskwright.tokenizer.files import is_filler
from maskwright.tokenizer.tokenizer import Tokenizer

FILE = "model.gguf"
# ``model_type`` of transformers -> llama.cpp's name, and the activation that it computes.
_ARCHITECTURES = {
    "bert": ("bert", "gelu"),
    "modernbert": ("modern-bert", "gelu"),
    "eurobert": ("eurobert", "silu"),
}
# ggml reads GELU from a table of fp16 numbers, so vectors are equal to four digits.
ALLOWED = 1e-4  # 1 - cosine
_MAX_SPLIT_APART = 0.1  # of the texts; its tokenizers differ for rare characters
_NEEDED_BY = "an export to gguf"
_CARD = """
The encoder for llama.cpp, in fp32; the vector of a text is {description}:

```python
from llama_cpp import Llama

model = Llama("{file}", embedding=True, n_ctx={longest}, n_batch={longest}, n_ubatch={longest})
vectors = model.embed(["A sentence.", "Another one."], normalize=True)
```

`llama-server -m {file} --embeddings` serves it. {aim}
"""
_METADATA: HubMetadata = {
    "library_name": "gguf",
    "pipeline_tag": "feature-extraction",
    "tags": ["maskwright", "gguf", "feature-extraction"],
}


def write(folder: Path, source: Source) -> Written:
    """Write the file and a card, load it with llama.cpp, and compare vectors.

    Raises:
        ExportError: llama.cpp does not compute this architecture, or splits texts in another way.
    """
    if not isinstance(source, VectorSource):
        raise ExportError("gguf has vectors of texts only, and this is a classifier. Use onnx.")
    if source.settings.truncate_dim is not None:
        raise ExportError(
            f"gguf has no vectors of truncate_dim = {source.settings.truncate_dim} dimensions. Use "
            "onnx."
        )
    source.save(folder)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != CARD:
            path.unlink()
    write_file(folder / FILE, source)
    facts = {"description": source.description, "aim": source.aim, "longest": source.max_length}
    adapt_card(folder, _METADATA, _CARD.format(file=FILE, **facts))
    return _compare(folder / FILE, source)


def find_architecture(config: EncoderConfig) -> Family:
    """Return the family with the same encoder that llama.cpp computes; raise ExportError if none.

    Heads do not matter: every RoBERTa is a BERT here.
    """
    reasons: list[str] = []
    for model_type, (_, activation) in _ARCHITECTURES.items():
        family, reason = choose_headless(config, FAMILIES[model_type], OWN)
        if family is OWN:
            reasons.append(reason.partition("has ")[2])
        elif config.hidden_act.removesuffix("_pytorch_tanh") != activation:
            reasons.append(f"no hidden_act = {config.hidden_act}")
        elif model_type != "bert" and (
            config.attention_bias or config.mlp_bias or config.mlp_output_bias or config.norm_bias
        ):
            reasons.append("no biases")
        else:
            return family
    nearest = min(range(len(reasons)), key=lambda index: reasons[index].count(";"))
    raise ExportError(
        f"llama.cpp has no such encoder: its {list(_ARCHITECTURES)[nearest]}, the nearest one, has "
        f"{reasons[nearest]}. Export it to onnx, which supports every architecture."
    )


def write_file(path: Path, source: VectorSource) -> None:
    """Write the encoder and the tokenizer as one file; raises as `write` does."""
    config, tokenizer = source.encoder.config, source.loaded.tokenizer
    family = find_architecture(config)
    if tokenizer.kind not in ("wordpiece", "bpe") or not source.loaded.add_special_tokens:
        raise ExportError(
            f"the tokenizer is {tokenizer.kind}, add_special_tokens = "
            f"{source.loaded.add_special_tokens}; gguf takes wordpiece and bpe, with [CLS] … [SEP]."
        )
    gguf: Any = import_library("gguf", "gguf", _NEEDED_BY)
    name, _ = _ARCHITECTURES[family.model_type]
    writer = gguf.GGUFWriter(path, name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    is_mean = source.settings.pooling == "mean"
    writer.add_pooling_type(gguf.PoolingType.MEAN if is_mean else gguf.PoolingType.CLS)
    _add_sizes(gguf, writer, config)
    _add_tokenizer(gguf, writer, tokenizer, config)
    [kind] = (kind for kind, spelled in gguf.MODEL_ARCH_NAMES.items() if spelled == name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    encoder = family.as_encoder()
    for ours, tensor in source.encoder.encoder.named_parameters(prefix="encoder"):
        theirs = encoder.native_names(ours, config)
        for one, rows in zip(theirs, tensor.detach().float().chunk(len(theirs)), strict=True):
            found = names.get_name(one, try_suffixes=(".weight", ".bias"))
            writer.add_tensor(found, rows.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(gguf: Any, writer: Any, config: EncoderConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_causal_attention(False)
    is_rms = config.norm == "rmsnorm"
    (writer.add_layer_norm_rms_eps if is_rms else writer.add_layer_norm_eps)(config.norm_eps)
    if config.positions == "rotary":
        writer.add_rope_freq_base(config.rope_theta)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if "sliding_attention" in config.layer_types:
        writer.add_rope_freq_base_swa(config.local_rope_theta)
        # The window is that of `EncoderConfig.window`, on both sides.
        writer.add_sliding_window(config.local_attention // 2 * 2)
        writer.add_sliding_window_pattern(
            [kind == "sliding_attention" for kind in config.layer_types]
        )


def _add_tokenizer(gguf: Any, writer: Any, tokenizer: Tokenizer, config: EncoderConfig) -> None:
    types, num_rows = gguf.TokenType, config.vocab_size
    tokens = [f"[PAD{row}]" for row in range(num_rows)]
    kinds = [types.UNUSED] * num_rows
    is_wordpiece = tokenizer.kind == "wordpiece"
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        if token_id in tokenizer.special_ids:
            tokens[token_id], kinds[token_id] = token, types.CONTROL
        elif not is_filler(token):
            # llama.cpp marks the first part of a word, where WordPiece marks all others.
            marked = token[2:] if token.startswith("##") else f"▁{token}"
            tokens[token_id] = marked if is_wordpiece else token
            kinds[token_id] = types.NORMAL
    writer.add_tokenizer_model("bert" if is_wordpiece else "gpt2")
    writer.add_tokenizer_pre("default" if is_wordpiece else "gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_type_count(max(1, config.type_vocab_size))
    if is_wordpiece:
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", tokenizer.lowercase)
        writer.add_bool("tokenizer.ggml.normalizer.strip_accents", tokenizer.strips_accents)
    else:
        merges = tokenizer.description["model"]["merges"]
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
    writer.add_bos_token_id(tokenizer.cls_id)
    writer.add_eos_token_id(tokenizer.sep_id)
    writer.add_sep_token_id(tokenizer.sep_id)
    writer.add_pad_token_id(tokenizer.pad_id)
    writer.add_unk_token_id(tokenizer.unk_id)
    writer.add_mask_token_id(tokenizer.mask_id)


def _compare(path: Path, source: VectorSource) -> Written:
    """Compare the vectors of texts that both tokenizers split alike."""
    llama: Any = import_library("llama_cpp", "gguf", _NEEDED_BY)
    prompt, most = source.settings.find_prompt(), source.max_length
    sentences = [text for text in source.choose_texts() if len(text) < 4 * most]
    prompted = [prompt + text for text in sentences]
    rows = source.embedder.make_rows(sentences)
    size = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), max(map(len, rows)))
    # Its threads wait for each other by spinning, which takes minutes on a busy machine.
    threads = {"n_threads": 1, "n_threads_batch": 1}
    model = llama.Llama(str(path), embedding=True, verbose=False, **size, **threads)
    pairs = list(zip(sentences, prompted, rows, strict=True))
    alike = [(text, put, row) for text, put, row in pairs if model.tokenize(put.encode()) == row]
    texts = [text for text, _, _ in alike]
    apart = [text for text in sentences if text not in texts]
    count = f"llama.cpp splits {len(apart)} of {len(pairs)} texts into other tokens"
    if len(apart) > _MAX_SPLIT_APART * len(pairs):
        raise ExportError(f"{count}, such as {apart[0][:60]!r}. Export it to onnx.")
    theirs = np.asarray([model.embed(put, normalize=True) for _, put, _ in alike])
    model.close()
    num_tokens = sum(len(row) for _, _, row in alike)
    notes = (f"{count}, such as {apart[0][:60]!r}",) if apart else ()
    notes += (f"put {prompt!r} before each text: the file holds no prompts",) if prompt else ()
    distances: list[float] = []
    for vectors, _ in list_judges(source, texts):
        lengths = np.linalg.norm(vectors, axis=1)
        cosines = (vectors.astype(np.float64) * theirs).sum(1) / lengths
        distances.append(float(1 - cosines.min()))
    what = "sentence vectors (1 - cosine)"
    found = OutputComparison(what, max(distances), ALLOWED, len(texts), num_tokens)
    return Written(found, notes=notes)
