"""Tensors of a model folder: ours to theirs and back, checked one by one. Never pickle."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwright.artifact.native.family import Family
from maskwright.errors import ModelFolderError
from maskwright.model.config import EncoderConfig
from maskwright.model.pretraining import MaskedLanguageModel

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt")


def write_weights(path: Path, model: MaskedLanguageModel, family: Family) -> None:
    """Writes the model's weights in fp32 under the family's names.

    Of a model in fp32 on the CPU no second copy is made.
    """
    config, tensors = model.config, {}
    # A tied decoder is the word embeddings and comes once, as transformers has it, too.
    for ours, tensor in model.named_parameters():
        names = family.native_names(ours, config)
        blocks = tensor.detach().to("cpu", torch.float32).chunk(len(names))
        tensors.update({n: b.contiguous() for n, b in zip(names, blocks, strict=True)})
    for name, second in family.written_twice(config).items():
        tensors[second] = tensors[name].clone()
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # which is no OSError, however full the disk is
        raise ModelFolderError(f"{path} cannot be written: {error}.") from None


def read_model(folder: Path, config: EncoderConfig, family: Family) -> MaskedLanguageModel:
    """Builds the model and fills it from the folder; every tensor must be there and fit.

    Raises:
        ModelFolderError: no safetensors, or a tensor that is missing, unknown, of another shape,
            or not finite.
    """
    found = read_tensors(folder)
    for old, new in family.renamed.items():
        found = {name.replace(old, new): tensor for name, tensor in found.items()}
    with torch.device("meta"):
        expected_tensors = dict(MaskedLanguageModel(config).named_parameters())
    state, used = {}, set[str]()
    for ours, expected in expected_tensors.items():
        names = family.native_names(ours, config)
        rows = expected.shape[0] // len(names)
        shape = torch.Size((rows, *expected.shape[1:]))
        blocks = [_take(found, name, shape, folder) for name in names]
        state[ours] = torch.cat(blocks).to(torch.float32, copy=True)
        used.update(names)
    _check_unused(set(found) - used, family, folder)
    return MaskedLanguageModel.around(config, state)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of ``model.safetensors``, or of the parts that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        tensors = {}
        for name in _list_parts(folder / INDEX):
            tensors.update(_read_file(folder / name))
        return tensors
    for name in PICKLES:
        if (folder / name).exists():
            raise ModelFolderError(
                f"{folder / name} is a pickle, and reading one can run code. Convert it: load the "
                "folder with transformers where you trust it, and call save_pretrained, which "
                f"writes {WEIGHTS}."
            )
    raise ModelFolderError(f"{folder} is not a model folder: it holds no {WEIGHTS}.")


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ModelFolderError(f"{path} cannot be read as safetensors: {reason}.") from None


def _list_parts(path: Path) -> Iterable[str]:
    try:
        names = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{path} is not an index of safetensors files.") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelFolderError(f"{path} names {name}, which is not a file beside it.")
    return names


def _take(found: dict[str, Tensor], name: str, shape: torch.Size, folder: Path) -> Tensor:
    if name not in found:
        raise ModelFolderError(f"{folder}: tensor {name} is missing from the weights.")
    tensor = found[name]
    if tensor.shape != shape:
        raise ModelFolderError(
            f"{folder}: tensor {name} has shape {tuple(tensor.shape)}, but config.json says "
            f"{tuple(shape)}."
        )
    if not tensor.is_floating_point():
        raise ModelFolderError(f"{folder}: tensor {name} holds {tensor.dtype}, not numbers.")
    if not torch.isfinite(tensor).all():
        raise ModelFolderError(f"{folder}: tensor {name} holds NaN or infinity.")
    return tensor


def _check_unused(names: set[str], family: Family, folder: Path) -> None:
    unknown = sorted(name for name in names if not name.startswith(family.ignored or ("\0",)))
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise ModelFolderError(
            f"{folder}: tensor {unknown[0]}{more} has no place in model_type "
            f"{family.model_type} with this config.json."
        )
