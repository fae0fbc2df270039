"""Export to transformers, and to sentence-transformers: the encoder with mean pooling."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.errors import ExportError, InputError
from maskwright.interop.classifier_source import Source
from maskwright.interop.comparison import TOLERANCE, OutputComparison
from maskwright.interop.masked_lm_source import MaskedModelSource, choose_sentences
from maskwright.interop.targets import Written, import_library, quiet_transformers
from maskwright.model.masked_lm import BareEncoder
from maskwright.model_folder.card import SIMILARITY, HubMetadata
from maskwright.model_folder.folder import adapt_card
from maskwright.model_folder.sentence_modules import write_modules

_NEEDED_BY = "an export to transformers"
_VECTORS_NEEDED_BY = "an export to sentence-transformers"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_VECTORS_CARD = """
The encoder with mean pooling over all tokens; vectors are normalized to length 1:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A sentence.", "Another one."])
```

Texts are truncated to {longest} tokens. {aim}
"""
_VECTORS_METADATA: HubMetadata = {
    "library_name": "sentence-transformers",
    "pipeline_tag": SIMILARITY,
    "tags": ["maskwright", "sentence-transformers", "feature-extraction", SIMILARITY],
}


def import_transformers() -> Any:
    """Return transformers with our families registered; raise MissingPackageError if missing."""
    return import_library("transformers", "sentence-transformers", _NEEDED_BY)


def check_family(source: Source) -> None:
    """Raise ExportError unless a class of transformers has this architecture, and InputError if the
    installed version is too old to have it.
    """
    family, reason = source.find_family()
    if family is not None and family.code:
        family, reason = None, f"the code of {family.architecture} is in {family.code} on the hub"
    if family is None:
        raise ExportError(
            f"no class of transformers has this architecture: {reason}. Export it to onnx, which "
            "supports every architecture."
        )
    installed, needed = import_transformers().__version__, family.since(source.model.config)
    version = import_library("packaging.version", "sentence-transformers", _NEEDED_BY).Version
    if version(installed) < version(needed):
        raise InputError(
            f"a folder of model_type {family.model_type} needs transformers {needed} or newer, "
            f"but {installed} is installed. Run: pip install 'transformers>={needed}'"
        )


def write(folder: Path, source: Source) -> Written:
    """Write the model folder, load it with transformers, and compare ids and logits; raises as
    `check_family`.
    """
    transformers = import_transformers()
    check_family(source)
    source.save(folder)
    takes_types = source.model.config.type_vocab_size > 1
    names = _INPUTS if takes_types else _INPUTS[:2]
    with quiet_transformers(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        source.check_ids(tokenizer)
        auto_class = getattr(transformers, source.auto_class)
        model = load_whole(auto_class, folder, may_leave=source.has_unused_head)

        def compute(*inputs: Tensor) -> Tensor:
            with torch.no_grad():
                return model(**dict(zip(names, inputs, strict=False))).logits

        return Written(source.compare(compute))


def load_whole(model_class: Any, folder: Path, may_leave: bool = False) -> Any:
    """Load a model with transformers; raise ExportError if a tensor is missing, has another shape,
    or is left out, unless it `may_leave` some.
    """
    model, info = model_class.from_pretrained(
        folder, local_files_only=True, output_loading_info=True, dtype=torch.float32
    )
    complaints = ("missing_keys", "mismatched_keys", "error_msgs", "unexpected_keys")
    for complaint in complaints[: 3 if may_leave else 4]:
        if found := sorted(map(str, info.get(complaint) or ())):
            kind = complaint.replace("_", " ")
            raise ExportError(f"transformers reports {kind}: {found[0]}. Nothing was written.")
    return model.eval()


def write_vectors(folder: Path, source: Source) -> Written:
    """Write the folder, load it with sentence-transformers, and compare vectors; raises as
    `check_family`.
    """
    if not isinstance(source, MaskedModelSource):
        raise ExportError(
            "a classifier has no sentence vectors. Export it to hf: if it labels texts, "
            "CrossEncoder of sentence-transformers loads that folder."
        )
    library = import_library("sentence_transformers", "sentence-transformers", _VECTORS_NEEDED_BY)
    transformers = import_transformers()
    check_family(source)
    longest = source.max_length
    with quiet_transformers(transformers):
        _write_encoder(folder, source, transformers)
        adapt_card(folder, _VECTORS_METADATA, _VECTORS_CARD.format(longest=longest, aim=source.aim))
        model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        if model.max_seq_length != longest:
            raise ExportError(
                f"sentence-transformers reads max_seq_length = {model.max_seq_length}, but the "
                f"model takes {longest} tokens. Nothing was written."
            )
        sentences = choose_sentences(source.loaded, source.data, mask_words=False)
        theirs = torch.from_numpy(model.encode(sentences.texts, show_progress_bar=False))
    ours = torch.from_numpy(source.embed(sentences.texts))
    num_tokens = sum(map(len, sentences.rows))
    largest = (ours - theirs).abs().max().item()  # of vectors of length 1, [N, D] each
    comparison = OutputComparison("sentence vectors", largest, TOLERANCE, len(ours), num_tokens)
    note = f"encode() truncates texts to {longest} tokens (max_seq_length)"
    return Written(comparison, notes=(note,))


def _write_encoder(folder: Path, source: MaskedModelSource, transformers: Any) -> None:
    """Write the model without its heads, and the configuration of its modules."""
    config = replace(source.model.config, sentence_pair_head=False)
    weights = source.model.encoder.named_parameters(prefix="encoder")
    source.save(folder, BareEncoder.from_tensors(config, dict(weights)))
    theirs = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    # BERT's class would add an unused layer of random weights.
    arguments = inspect.signature(transformers.MODEL_MAPPING[type(theirs)].__init__).parameters
    has_pooler = "add_pooling_layer" in arguments
    settings = {"model_args": {"add_pooling_layer": False}} if has_pooler else {}
    write_modules(folder, config.hidden_size, "mean", source.max_length, **settings)
