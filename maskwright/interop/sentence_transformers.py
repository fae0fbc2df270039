"""Export to sentence-transformers: the encoder without its head, then mean pooling."""

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from maskwright.errors import ExportError
from maskwright.files import write_json
from maskwright.inference.embed import Embedder
from maskwright.interop.comparison import TOLERANCE, OutputComparison
from maskwright.interop.libraries import import_library, quiet_transformers
from maskwright.interop.masked_lm_source import MaskedModelSource, choose_sentences
from maskwright.interop.targets import Source, Target, Written
from maskwright.interop.transformers import check_family, import_transformers, load_whole
from maskwright.model_folder.card import SIMILARITY, HubMetadata
from maskwright.model_folder.folder import CONFIG, adapt_card
from maskwright.model_folder.weights import WEIGHTS
from maskwright.runs.find_model import write_modules

_NEEDED_BY = "an export to sentence-transformers"
_CARD = """
The encoder with mean pooling over all tokens; vectors are normalized to length 1:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A sentence.", "Another one."])
```

Texts are truncated to {longest} tokens. {aim}
"""
_METADATA: HubMetadata = {
    "library_name": "sentence-transformers",
    "pipeline_tag": SIMILARITY,
    "tags": ["maskwright", "sentence-transformers", "feature-extraction", SIMILARITY],
}


def write(folder: Path, source: Source) -> Written:
    """Write the folder, load it with sentence-transformers, and compare vectors.

    Raises:
        ExportError: no class of transformers has this architecture, the model is a classifier, or
            the library truncates texts at another length.
        InputError: the installed transformers is too old.
    """
    if not isinstance(source, MaskedModelSource):
        raise ExportError(
            "a classifier has no sentence vectors. Export it to hf: if it labels texts, "
            "CrossEncoder of sentence-transformers loads that folder."
        )
    library = import_library("sentence_transformers", "sentence-transformers", _NEEDED_BY)
    transformers = import_transformers()
    check_family(source)
    longest = source.max_length
    with quiet_transformers(transformers):
        _write_encoder(folder, source, transformers)
        adapt_card(folder, _METADATA, _CARD.format(longest=longest, aim=source.aim))
        model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        if model.max_seq_length != longest:
            raise ExportError(
                f"sentence-transformers reads max_seq_length = {model.max_seq_length}, but the "
                f"model takes {longest} tokens. Nothing was written."
            )
        sentences = choose_sentences(source.loaded, source.data, mask_words=False)
        theirs = torch.from_numpy(model.encode(sentences.texts, show_progress_bar=False))
    loaded = source.loaded
    embed = Embedder.from_parts(loaded.model, loaded.tokenizer, loaded.add_special_tokens)
    ours, num_tokens = torch.from_numpy(embed(sentences.texts)), sum(map(len, sentences.rows))
    largest = (ours - theirs).abs().max().item()  # of vectors of length 1, [N, D] each
    comparison = OutputComparison("sentence vectors", largest, TOLERANCE, len(ours), num_tokens)
    note = f"encode() truncates texts to {longest} tokens (max_seq_length)"
    return Written(comparison, notes=(note,))


def _write_encoder(folder: Path, source: MaskedModelSource, transformers: Any) -> None:
    """Write the part of the model that AutoModel loads, and the configuration of its modules."""
    whole = folder / "whole"
    source.save(whole)
    config = transformers.AutoConfig.from_pretrained(whole, local_files_only=True)
    model_class = transformers.MODEL_MAPPING[type(config)]
    # BERT's class would add an unused layer of random weights.
    has_pooler = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    options = {"add_pooling_layer": False} if has_pooler else {}
    model = load_whole(model_class, whole, may_leave=True, **options)  # without the head
    for path in whole.iterdir():
        if path.name not in (CONFIG, WEIGHTS):
            path.rename(folder / path.name)
    model.save_pretrained(folder)
    # Older names, such as global_rope_theta, which text-embeddings-inference needs.
    ours, theirs = (json.loads((one / CONFIG).read_text("utf-8")) for one in (whole, folder))
    write_json(folder / CONFIG, {**ours, **theirs})
    shutil.rmtree(whole)
    settings = {"model_args": options} if options else {}
    width = source.model.config.hidden_size
    write_modules(folder, width, "mean", source.max_length, **settings)


TARGET = Target(("sentence-transformers", "transformers", "torch"), write)
