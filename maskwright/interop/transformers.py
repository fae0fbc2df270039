"""Export to transformers: a model folder, loaded with transformers and compared."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.errors import ExportError, InputError
from maskwright.interop.libraries import import_library, quiet_transformers
from maskwright.interop.targets import Source, Target, Written

_NEEDED_BY = "an export to transformers"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def import_transformers() -> Any:
    """Return transformers with our families registered; raise MissingPackageError if missing."""
    return import_library("transformers", "sentence-transformers", _NEEDED_BY)


def check_family(source: Source) -> None:
    """Raise unless a class of the installed transformers has this architecture.

    Raises:
        ExportError: there is no such class; the message has the reason.
        InputError: the installed version is too old to have it.
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
    """Write the model folder, load it with transformers, and compare ids and logits.

    Raises:
        ExportError: no class of transformers has this architecture, or the ids differ.
        InputError: the installed transformers is too old.
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


def load_whole(model_class: Any, folder: Path, may_leave: bool = False, **options: Any) -> Any:
    """Load a model with transformers; raise if a tensor is missing or has another shape.

    Args:
        may_leave: the folder may contain tensors that this class does not load.

    Raises:
        ExportError: there is such a tensor.
    """
    model, info = model_class.from_pretrained(
        folder, local_files_only=True, output_loading_info=True, dtype=torch.float32, **options
    )
    complaints = ("missing_keys", "mismatched_keys", "error_msgs", "unexpected_keys")
    for complaint in complaints[: 3 if may_leave else 4]:
        if found := sorted(map(str, info.get(complaint) or ())):
            kind = complaint.replace("_", " ")
            raise ExportError(f"transformers reports {kind}: {found[0]}. Nothing was written.")
    return model.eval()


TARGET = Target(("transformers", "torch"), write)
