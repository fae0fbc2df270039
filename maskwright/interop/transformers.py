"""Export to transformers, and to sentence-transformers, which judges all exports of vectors."""

import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import ExportError, InputError, MissingPackageError
from maskwright.interop.classifier_source import Source
from maskwright.interop.comparison import Compute, OutputComparison
from maskwright.interop.targets import Written, import_library, quiet_transformers
from maskwright.interop.vector_source import VectorSource, need_logits
from maskwright.model_folder.folder import adapt_card
from maskwright.model_folder.model_card import SIMILARITY, HubMetadata

_NEEDED_BY = "an export to transformers"
_VECTORS_NEEDED_BY = "an export to sentence-transformers"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_VECTORS_CARD = """
The encoder; the vector of a text is {description}:

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
    need_logits(source, "hf")
    assert not isinstance(source, VectorSource)
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
    if not isinstance(source, VectorSource):
        raise ExportError(
            "a classifier has no sentence vectors. Export it to hf: if it labels texts, "
            "CrossEncoder of sentence-transformers loads that folder."
        )
    import_library("sentence_transformers", "sentence-transformers", _VECTORS_NEEDED_BY)
    check_family(source)
    source.save(folder, **_describe_pooler(source))
    card = _VECTORS_CARD.format(
        longest=source.max_length, aim=source.aim, description=source.description
    )
    adapt_card(folder, _VECTORS_METADATA, card)
    texts = source.choose_texts()
    theirs, longest = encode_by_library(folder, texts)
    if longest != source.max_length:
        raise ExportError(
            f"sentence-transformers reads max_seq_length = {longest}, but the model takes "
            f"{source.max_length} tokens. Nothing was written."
        )
    found = [source.compare_vectors(theirs, *judge) for judge in list_judges(source, texts)]
    note = f"encode() truncates texts to {longest} tokens (max_seq_length)"
    return Written(max(found, key=lambda one: _rank(one.largest)), notes=(note,))


def _rank(difference: float) -> float:
    return math.inf if difference != difference else difference  # NaN


def _describe_pooler(source: VectorSource) -> dict[str, Any]:
    """Return the argument without which BERT's class would add a layer of random weights."""
    transformers = import_transformers()
    family, _ = source.find_family()
    assert family is not None, "check_family"
    config = transformers.CONFIG_MAPPING[family.model_type]
    arguments = inspect.signature(transformers.MODEL_MAPPING[config].__init__).parameters
    has_pooler = "add_pooling_layer" in arguments
    return {"model_args": {"add_pooling_layer": False}} if has_pooler else {}


def encode_by_library(
    folder: Path, texts: list[str], max_length: int | None = None, *, scales: bool = False
) -> tuple[NDArray[np.float32], int]:
    """Return the vectors [N, D] that sentence-transformers computes from a folder, and the longest
    input that it reads there.

    Args:
        max_length: a lower limit than the library's, which does not know that of positions.
        scales: scale vectors to length 1.
    """
    library = import_library("sentence_transformers", "sentence-transformers", _VECTORS_NEEDED_BY)
    with quiet_transformers(import_transformers()):
        model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        longest: int = model.max_seq_length
        model.max_seq_length = min(longest, max_length or longest)
        options = {"normalize_embeddings": True} if scales else {}
        return model.encode(texts, show_progress_bar=False, **options), longest


def list_judges(
    source: VectorSource, texts: list[str]
) -> Iterator[tuple[NDArray[np.float32], str]]:
    """Yield the vectors of texts with which an export is compared, and who computed them from the
    source: sentence-transformers if it is installed and has this architecture, and maskwright.
    """
    try:
        check_family(source)
        scales = not source.settings.is_stated  # the library does so on demand only
        found, _ = encode_by_library(source.root, texts, source.max_length, scales=scales)
        yield found, "sentence-transformers"
    except (ExportError, InputError, MissingPackageError):
        pass
    yield source.embed(texts), "maskwright"


def compare_vectors(source: VectorSource, compute: Compute) -> OutputComparison:
    """Compare the vectors of a graph with those of `list_judges`."""
    texts = source.choose_texts()
    theirs = source.run(compute, texts)
    found = [source.compare_vectors(theirs, *judge) for judge in list_judges(source, texts)]
    return max(found, key=lambda one: _rank(one.largest))
