"""The tensors in safetensors files: what they are is known before any value is read.

safetensors checks that names, shapes and offsets fit the file; what it leaves to us is that a
header of a hundred megabytes becomes gigabytes, and whether anybody wants these tensors at all.

Our tensors in files of theirs: found, checked one by one, read.

Everything about names and shapes is known to be right before any value is read.

Weights of a model folder: ours to theirs and back. Never pickle.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwright.errors import ModelFolderError, show_value
from maskwright.files import read_json
from maskwright.model.classifier import Classifier
from maskwright.model.config import EncoderConfig, HeadConfig
from maskwright.model.electra import Discriminator
from maskwright.model.heads import SentencePairHead
from maskwright.model.pretraining import PAIR_HEAD, TIED, MaskedLanguageModel, Network
from maskwright.model_folder.native.family import DECODER_BIAS, Family

MAX_HEADER_BYTES = 16 << 20  # a hundred thousand tensors
FLOATS = ("F64", "F32", "F16", "BF16")


class StoredTensors:
    """The tensors of one or more files, by name.

    Raises:
        ModelFolderError: a file that is not what it should be.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        for path in paths:
            file: Any = self._stack.enter_context(_open(path))
            names: list[str] = file.keys()
            twice = self._files.keys() & names
            if twice:
                raise ModelFolderError(f"{path} holds tensor {min(twice)}, as another part does.")
            self._files.update(dict.fromkeys(names, file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def names(self) -> set[str]:
        return set(self._files)

    def shape(self, name: str) -> torch.Size:
        return torch.Size(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """As safetensors calls it: F32, BF16, I64, …"""
        return self._files[name].get_slice(name).get_dtype()

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """The tensor, or its rows from `start` to `stop`."""
        file = self._files[name]
        whole = start == 0 and stop is None
        return file.get_tensor(name) if whole else file.get_slice(name)[start:stop]


def check_header(path: Path) -> None:
    """Raises SafetensorError if the header of a safetensors file would take too much memory."""
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > MAX_HEADER_BYTES:
        raise SafetensorError(f"its header has {header} bytes, at most {MAX_HEADER_BYTES} work")


def _open(path: Path) -> Any:
    try:
        check_header(path)
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFolderError(f"{path} cannot be read as safetensors: {reason}.") from None


_WORDS = "encoder.embeddings.word.weight"
_PRECISION = 1e-2  # of values that are computed and not learned; bf16 keeps this much of them


class Place(NamedTuple):
    """Rows of a file's tensor `name`: block `block` of the `blocks` equal ones that it holds."""

    name: str
    block: int = 0
    blocks: int = 1


def find_places(names: Iterable[str], family: Family) -> dict[str, list[Place]]:
    """The family's names of today -> where they are in files that may spell them as of old."""
    places: dict[str, list[Place]] = {}
    for name in sorted(names):
        modern = name
        for old, new in family.renamed.items():
            modern = re.sub(old, new, modern)
        fused = next((whole for whole in family.fused if whole in modern), "")
        parts = [modern.replace(fused, part) for part in family.fused.get(fused, ())]
        for index, part in enumerate(parts):
            places.setdefault(part, []).append(Place(name, index, len(parts)))
        if not parts:
            places.setdefault(modern, []).append(Place(name))
    return places


class WeightReader:
    """The tensors of one model folder, under our names.

    Each of our tensors is first checked (`check`), then what else there is (`check_rest`), and
    only then read (`read`); what is there twice is compared with what was read (`check_copies`).

    Raises:
        ModelFolderError: a tensor that is missing, unknown, of another shape, not finite, or not
            equal to the one that it is tied to.
    """

    def __init__(
        self, folder: Path, stored: StoredTensors, config: EncoderConfig, family: Family
    ) -> None:
        self.folder, self.stored, self.config, self.family = folder, stored, config, family
        self.places = find_places(stored.names, family)
        self.blocks: dict[str, list[Place]] = {}
        self.copies = self._list_copies()
        self.constants = {
            name: value
            for name, value in family.constants(config).items()
            if not self._is_ignored(name)
        }

    def check(self, ours: str, shape: torch.Size) -> None:
        """Whether our tensor `ours` is there and has this shape."""
        names = self.family.native_names(ours, self.config)
        copy = self.copies.get(ours)
        if copy in self.places and names[0] not in self.places:
            names = (copy,)  # transformers, too, takes the one that is there
        self.blocks[ours] = [self._locate(name) for name in names]
        rows = shape[0] // len(names) + self.family.row_offset(ours, self.config)
        for place in self.blocks[ours]:
            self._check_tensor(place.name, (place.blocks * rows, *shape[1:]))

    def check_rest(self) -> None:
        """Whether all other tensors are such as the masked language model does not need."""
        used = {place.name for blocks in self.blocks.values() for place in blocks}
        known = {*self.copies.values(), *self.constants, self.family.tied_bias}
        unknown = sorted(
            place.name
            for name, places in self.places.items()
            for place in places
            if place.name not in used and name not in known and not self._is_ignored(name)
        )
        if unknown:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise self._error(
                f"{unknown[0]}{more}",
                f"has no place in model_type {self.family.model_type} with this config.json",
            )

    def read(self, ours: str) -> Tensor:
        """Our tensor `ours` in fp32, without the rows that only theirs has."""
        blocks = [self._read_block(place) for place in self.blocks[ours]]
        tensor = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        before = self.family.row_offset(ours, self.config)
        return tensor[before:].clone() if before else tensor

    def check_copies(self, state: dict[str, Tensor]) -> None:
        """Whether what the files hold a second time, or what they need not hold, is right."""
        for ours, name in self.copies.items():
            for place in self.places.get(name, []):
                self._check_tensor(place.name, tuple(state[ours].shape))
                if not torch.equal(self._read_block(place), state[ours]):
                    raise self._error(
                        place.name,
                        f"differs from {self.blocks[ours][0].name}, but config.json says "
                        "tie_word_embeddings = True; set it to False if both are meant",
                    )
        for name, value in self.constants.items():
            for place in self.places.get(name, []):
                self._check_tensor(place.name, tuple(value.shape))
                if not torch.allclose(self._read_block(place), value, rtol=_PRECISION, atol=0):
                    raise self._error(place.name, "is not what config.json makes of it")

    def _list_copies(self) -> dict[str, str]:
        """Our tensor -> their second name for it, where the decoder is tied."""
        if not self.config.tie_word_embeddings or "head.decoder" not in self.family.tensors:
            return {}
        (weight,) = self.family.native_names(TIED, self.config)
        bias = weight.removesuffix(".weight") + ".bias"
        return {_WORDS: weight, **({DECODER_BIAS: bias} if self.family.tied_bias else {})}

    def _locate(self, name: str) -> Place:
        places = self.places.get(name, [])
        if not places:
            raise self._error(name, "is missing from the weights")
        if len(places) > 1:
            raise self._error(places[0].name, f"is there a second time, as {places[1].name}")
        return places[0]

    def _check_tensor(self, name: str, expected: tuple[int, ...]) -> None:
        shape, dtype = tuple(self.stored.shape(name)), self.stored.dtype(name)
        if shape != expected:
            raise self._error(name, f"has shape {shape}, but config.json says {expected}")
        if dtype not in FLOATS:
            raise self._error(name, f"holds {dtype}, not one of {', '.join(FLOATS)}")

    def _read_block(self, place: Place) -> Tensor:
        rows = self.stored.shape(place.name)[0] // place.blocks
        start = place.block * rows
        tensor = self.stored.read(place.name, start, start + rows).to(torch.float32, copy=True)
        if not torch.isfinite(tensor).all():
            raise self._error(place.name, "holds NaN or infinity")
        return tensor

    def _is_ignored(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.family.ignored)

    def _error(self, name: str, rule: str) -> ModelFolderError:
        return ModelFolderError(f"{self.folder}: tensor {name} {rule}.")


WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt")
MAX_INDEX_BYTES = 16 << 20
_PART = re.compile(r"\w[\w.-]*\.safetensors")  # no path, so nothing outside the folder


def write_weights(path: Path, model: Network, family: Family) -> None:
    """Writes the model's weights in fp32 under the family's names.

    Of a model in fp32 on the CPU no second copy is made.
    """
    config, tensors = model.config, dict(family.constants(model.config))
    # A tied decoder is the word embeddings and is stored once, as transformers stores it.
    for ours, tensor in model.named_parameters():
        rows = tensor.detach().to("cpu", torch.float32)
        before = family.row_offset(ours, config)
        rows = F.pad(rows, (0, 0, before, 0)) if before else rows
        names = family.native_names(ours, config)
        blocks = rows.chunk(len(names))
        tensors.update({n: b.contiguous() for n, b in zip(names, blocks, strict=True)})
    tensors.update(_copy_bias(tensors, config, family))
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # which is no OSError, however full the disk is
        raise ModelFolderError(f"{path} cannot be written: {error}.") from None


def _copy_bias(
    tensors: Mapping[str, Tensor], config: EncoderConfig, family: Family
) -> dict[str, Tensor]:
    """Return the decoder's bias under its second name, if its class has one and reads it."""
    if not family.tied_bias or (config.tie_word_embeddings and not family.repeats_bias):
        return {}
    (stored,) = family.native_names(DECODER_BIAS, config)
    (weight,) = family.native_names(TIED, config)
    names = {family.tied_bias, weight.removesuffix(".weight") + ".bias"}
    return {name: tensors[stored].clone() for name in names - {stored}}


def read_model(folder: Path, config: EncoderConfig, family: Family) -> MaskedLanguageModel:
    """Builds the model and fills it from the folder; every tensor must be there and fit.

    No memory is taken for a model before all shapes in the files are those of its `config`.

    Raises:
        ModelFolderError: no safetensors, or a tensor that `WeightReader` refuses.
    """
    with torch.device("meta"):
        expected = dict(MaskedLanguageModel(config).named_parameters())
    return MaskedLanguageModel.from_tensors(config, _read_tensors(folder, expected, config, family))


def read_discriminator(folder: Path, config: EncoderConfig, family: Family) -> Discriminator:
    """The same for a discriminator; raises as `read_model` does."""
    with torch.device("meta"):
        expected = dict(Discriminator(config).named_parameters())
    return Discriminator.from_tensors(config, _read_tensors(folder, expected, config, family))


def read_classifier(
    folder: Path, config: EncoderConfig, head: HeadConfig, family: Family
) -> Classifier:
    """The same for a classifier; raises as `read_model` does."""
    with torch.device("meta"):
        expected = dict(Classifier(config, head).named_parameters())
    return Classifier.from_tensors(config, head, _read_tensors(folder, expected, config, family))


def _read_tensors(
    folder: Path, expected: Mapping[str, Tensor], config: EncoderConfig, family: Family
) -> dict[str, Tensor]:
    with StoredTensors(_list_files(folder)) as stored:
        reader = WeightReader(folder, stored, config, family)
        for ours, tensor in expected.items():
            reader.check(ours, tensor.shape)
        reader.check_rest()
        state = {ours: reader.read(ours) for ours in expected}
        reader.check_copies(state)
    return state


def holds_pair_head(folder: Path, config: EncoderConfig, family: Family) -> bool:
    """Whether the files hold a head for pairs of texts, whatever class ``config.json`` names.

    The published folders of BERT hold one and name the class without it.
    """
    if not family.pair_architecture:
        return config.sentence_pair_head
    with torch.device("meta"):
        parameters = [name for name, _ in SentencePairHead(config).named_parameters()]
    with StoredTensors(_list_files(folder)) as stored:
        places = find_places(stored.names, family)
    names = [family.native_names(f"{PAIR_HEAD}{name}", config) for name in parameters]
    return all(name in places for (name,) in names)


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
