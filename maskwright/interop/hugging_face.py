"""A folder for transformers: its own names, and proof that it computes the same."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.errors import ExportError, InputError
from maskwright.files import write_text
from maskwright.interop.comparison import Difference, batch_rows, compare_logits
from maskwright.interop.folders import write_model_folder
from maskwright.interop.libraries import import_library, quiet_transformers
from maskwright.interop.sentences import Sentences
from maskwright.model.config import EncoderConfig
from maskwright.model_folder.families import native_family
from maskwright.model_folder.folder import CARD, LoadedModel
from maskwright.model_folder.native.family import Family

NEEDS = "an export to transformers"


def import_transformers() -> Any:
    """The library, of which an extra brings a version that knows all our families.

    Raises:
        MissingPackageError: it is not installed.
    """
    return import_library("transformers", "sentence-transformers", NEEDS)


def check_native(config: EncoderConfig) -> None:
    """Raise unless a class of the installed transformers computes this architecture.

    Raises:
        ExportError: there is no such class; says why.
        InputError: the installed version does not have it yet.
    """
    family, reason = native_family(config)
    if family is None:
        raise ExportError(
            f"no class of transformers computes this architecture: {reason}. Export it to onnx, "
            "which takes every architecture."
        )
    check_version(family, config)


def check_version(family: Family, config: EncoderConfig) -> None:
    """Raise InputError if the installed transformers is too old for a folder of this family."""
    installed, needed = import_transformers().__version__, family.since(config)
    version = import_library("packaging.version", "sentence-transformers", NEEDS).Version
    if version(installed) < version(needed):
        raise InputError(
            f"a folder of model_type {family.model_type} needs transformers {needed} or newer, "
            f"and {installed} is installed. Run: pip install 'transformers>={needed}'"
        )


def write_hugging_face(
    folder: Path, loaded: LoadedModel, sentences: Sentences, card: str | None
) -> Difference:
    """Writes the folder, loads it with transformers, and compares ids and logits.

    Raises:
        ExportError: no class of transformers computes this architecture, or it computes
            something else.
    """
    transformers = import_transformers()
    check_native(loaded.model.config)
    write_model_folder(folder, loaded)
    if card is not None:
        write_text(folder / CARD, card)
    with quiet_transformers(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        may_leave = loaded.model.config.sentence_pair_head  # which is for AutoModelForPreTraining
        model = load_whole(transformers.AutoModelForMaskedLM, folder, may_leave)
        check_ids(tokenizer, sentences)

        def compute(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            with torch.no_grad():
                return model(input_ids=input_ids, attention_mask=attention_mask).logits

        config, pad_id = loaded.model.config, loaded.tokenizer.pad_id
        batches = batch_rows(sentences.rows, config.vocab_size, pad_id)
        return compare_logits(loaded, batches, compute)


def load_whole(model_class: Any, folder: Path, may_leave: bool = False, **options: Any) -> Any:
    """A model of transformers in which no tensor is missing or of another shape.

    Args:
        may_leave: whether the folder may hold tensors that this class has no use for.

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


def check_ids(tokenizer: Any, sentences: Sentences) -> None:
    """Lets pass a tokenizer of transformers that gives the same ids, padded on the right.

    Raises:
        ExportError: it does not.
    """
    encoded = tokenizer(sentences.texts, padding=True, return_tensors="pt")
    rows = zip(encoded["input_ids"], encoded["attention_mask"].sum(1).tolist(), strict=True)
    theirs = [ids[:length].tolist() for ids, length in rows]
    for text, ours, found in zip(sentences.texts, sentences.rows, theirs, strict=True):
        if ours != found:
            raise ExportError(
                f"transformers' tokenizer gives other ids for {text[:60]!r}: {found[:8]} … instead "
                f"of {ours[:8]} …. Nothing was written; this is a bug in maskwright or there."
            )
