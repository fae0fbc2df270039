"""Tensors of a model folder: ours to theirs and back, checked one by one. Never pickle."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from maskwright.artifact.native.family import Family
from maskwright.artifact.stored import FLOATS, StoredTensors
from maskwright.errors import ModelFolderError, show_value
from maskwright.files import read_json
from maskwright.model.config import EncoderConfig
from maskwright.model.pretraining import MaskedLanguageModel

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt")
MAX_INDEX_BYTES = 16 << 20
_PART = re.compile(r"\w[\w.-]*\.safetensors")  # no path, so nothing outside the folder


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

    No memory is taken for a model before all shapes in the files are those of its `config`.

    Raises:
        ModelFolderError: no safetensors, or a tensor that is missing, unknown, of another shape,
            or not finite.
    """
    with torch.device("meta"):
        expected = dict(MaskedLanguageModel(config).named_parameters())
    wanted = {
        ours: (family.native_names(ours, config), tensor.shape) for ours, tensor in expected.items()
    }
    with StoredTensors(_list_files(folder)) as stored:
        places = _rename(stored.names, family)
        for names, shape in wanted.values():
            for name in names:
                rows = torch.Size((shape[0] // len(names), *shape[1:]))
                _check_tensor(stored, places, name, rows, folder)
        used = {name for names, _ in wanted.values() for name in names}
        _check_unused(places.keys() - used, family, folder)
        state = {
            ours: torch.cat([_read_finite(stored, places[name], folder) for name in names])
            for ours, (names, _) in wanted.items()
        }
    return MaskedLanguageModel.around(config, state)


def _list_files(folder: Path) -> Iterable[Path]:
    """``model.safetensors``, or the parts that its index names."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return [folder / name for name in _list_parts(folder / INDEX)]
    for name in PICKLES:
        if (folder / name).exists():
            raise ModelFolderError(
                f"{folder / name} is a pickle, and reading one can run code. Convert it: load the "
                "folder with transformers where you trust it, and call save_pretrained, which "
                f"writes {WEIGHTS}."
            )
    raise ModelFolderError(f"{folder} is not a model folder: it holds no {WEIGHTS}.")


def _list_parts(path: Path) -> Iterable[str]:
    try:
        names = sorted(set(read_json(path, MAX_INDEX_BYTES)["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{path} is not an index of safetensors files.") from error
    for name in names:
        if not isinstance(name, str) or not _PART.fullmatch(name):
            shown = show_value(name)
            raise ModelFolderError(f"{path} names {shown}, not a safetensors file beside it.")
    return names


def _rename(names: Iterable[str], family: Family) -> dict[str, str]:
    """The family's names of today -> those in the file."""
    places = {name: name for name in names}
    for old, new in family.renamed.items():
        places = {name.replace(old, new): place for name, place in places.items()}
    return places


def _check_tensor(
    stored: StoredTensors, places: Mapping[str, str], name: str, expected: torch.Size, folder: Path
) -> None:
    if name not in places:
        raise ModelFolderError(f"{folder}: tensor {name} is missing from the weights.")
    shape, dtype = stored.shape(places[name]), stored.dtype(places[name])
    if shape != expected:
        raise ModelFolderError(
            f"{folder}: tensor {name} has shape {tuple(shape)}, but config.json says "
            f"{tuple(expected)}."
        )
    if dtype not in FLOATS:
        raise ModelFolderError(
            f"{folder}: tensor {name} holds {dtype}, not one of {', '.join(FLOATS)}."
        )


def _read_finite(stored: StoredTensors, name: str, folder: Path) -> Tensor:
    tensor = stored.read(name).to(torch.float32, copy=True)
    if not torch.isfinite(tensor).all():
        raise ModelFolderError(f"{folder}: tensor {name} holds NaN or infinity.")
    return tensor


def _check_unused(names: Collection[str], family: Family, folder: Path) -> None:
    unknown = sorted(name for name in names if not name.startswith(family.ignored or ("\0",)))
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise ModelFolderError(
            f"{folder}: tensor {unknown[0]}{more} has no place in model_type "
            f"{family.model_type} with this config.json."
        )
