"""A folder for sentence-transformers: the encoder without its head, then mean pooling.

The JSON files are in the form that all versions of the library since 2 read; what version 6 would
write, older ones cannot.
"""

import inspect
import shutil
from pathlib import Path
from typing import Any

import torch

from maskwright.errors import ExportError
from maskwright.files import write_json
from maskwright.inference.embed import Embedder
from maskwright.interop.comparison import Difference, compare_vectors
from maskwright.interop.folders import adapt_card, write_model_folder
from maskwright.interop.hugging_face import check_native, import_transformers, load_whole
from maskwright.interop.libraries import import_library, quiet_transformers
from maskwright.interop.sentences import Sentences
from maskwright.model_folder.folder import CONFIG, LoadedModel
from maskwright.model_folder.weights import WEIGHTS

_NEEDS = "an export to sentence-transformers"
_POOLING, _NORMALIZE = "1_Pooling", "2_Normalize"
_CARD = """
The encoder with mean pooling over all tokens, as vectors of length 1:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A sentence.", "Another one."])
```

Texts are cut at {longest} tokens. It has learned to guess hidden words, not yet which sentences
mean the same: fine-tune it for that.
"""
_METADATA = {
    "library_name": "sentence-transformers",
    "pipeline_tag": "sentence-similarity",
    "tags": ["maskwright", "sentence-transformers", "feature-extraction", "sentence-similarity"],
}


def write_sentence_transformers(
    folder: Path, loaded: LoadedModel, sentences: Sentences, card: str | None
) -> Difference:
    """Writes the folder, loads it with sentence-transformers, and compares vectors.

    Raises:
        ExportError: no class of transformers computes this architecture, or the vectors differ.
    """
    library = import_library("sentence_transformers", "sentence-transformers", _NEEDS)
    transformers = import_transformers()
    check_native(loaded.model.config)
    with quiet_transformers(transformers):
        _write_encoder(folder, loaded, transformers)
    longest = loaded.model.config.max_position_embeddings
    adapt_card(folder, card, _METADATA, _CARD.format(longest=longest))
    with quiet_transformers(transformers):
        model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        if model.max_seq_length != longest:
            raise ExportError(
                f"sentence-transformers reads max_seq_length = {model.max_seq_length}, but the "
                f"model takes {longest} tokens. Nothing was written."
            )
        theirs = torch.from_numpy(model.encode(sentences.texts, show_progress_bar=False))
    num_tokens = sum(map(len, sentences.rows))
    embed = Embedder.from_parts(loaded.model, loaded.tokenizer, loaded.add_special_tokens)
    ours = torch.from_numpy(embed(sentences.texts))
    return compare_vectors(ours, theirs, num_tokens)


def _write_encoder(folder: Path, loaded: LoadedModel, transformers: Any) -> None:
    """What AutoModel takes of the model, and the modules around it."""
    whole = folder / "whole"
    write_model_folder(whole, loaded)
    config = transformers.AutoConfig.from_pretrained(whole, local_files_only=True)
    model_class = transformers.MODEL_MAPPING[type(config)]
    # BERT's class would add a layer of random weights that nothing here uses.
    has_pooler = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    options = {"add_pooling_layer": False} if has_pooler else {}
    model = load_whole(model_class, whole, may_leave=True, **options)  # it leaves the head
    for path in whole.iterdir():
        if path.name not in (CONFIG, WEIGHTS):
            path.rename(folder / path.name)
    model.save_pretrained(folder)
    shutil.rmtree(whole)
    longest, width = loaded.model.config.max_position_embeddings, loaded.model.config.hidden_size
    settings: dict[str, Any] = {"max_seq_length": longest, "do_lower_case": False}
    write_json(
        folder / "sentence_bert_config.json",
        {**settings, "model_args": options} if options else settings,
    )
    _write_modules(folder, width)


def _write_modules(folder: Path, width: int) -> None:
    kinds = (("", "Transformer"), (_POOLING, "Pooling"), (_NORMALIZE, "Normalize"))
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    (folder / _POOLING).mkdir()
    write_json(
        folder / _POOLING / CONFIG,
        {
            "word_embedding_dimension": width,
            **{f"pooling_mode_{mode}": mode == "mean_tokens" for mode in modes},
        },
    )
