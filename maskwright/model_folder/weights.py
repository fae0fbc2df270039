"""Reading and writing the weights of a model folder as safetensors, under a family's names.

Names and shapes are checked before any value is read. A pickle is never read.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwright.errors import ModelFolderError
from maskwright.files import read_json
from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import PAIR_HEAD, TIED, EncoderModel, Network, SentencePairHead
from maskwright.model_folder.native.family import DECODER_BIAS, Family

Kind = TypeVar("Kind", bound=EncoderModel)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt")
MAX_INDEX_BYTES = 16 << 20
FLOATS = ("F64", "F32", "F16", "BF16")
_EMBEDDINGS = "encoder.embeddings.word.weight"


@contextmanager
def open_tensors(folder: Path) -> Generator[Mapping[str, Any]]:
    """Yield the tensors of a folder by name, as slices of safetensors, which are read when indexed.

    Raises:
        ModelFolderError: there is no safetensors file, or it cannot be read.
    """
    stored: dict[str, Any] = {}
    with ExitStack() as stack:
        for path in list_files(folder):
            try:
                file: Any = stack.enter_context(safe_open(path, framework="pt"))
                names: list[str] = file.keys()
                stored.update((name, file.get_slice(name)) for name in names)
            except (SafetensorError, OSError, ValueError) as error:
                reason = " ".join(str(error).split())
                raise ModelFolderError(f"{path} cannot be read as safetensors: {reason}.") from None
        yield stored


@dataclass(frozen=True)
class StoredBlock:
    """Rows of a stored tensor: block `index` of its `count` equal row blocks."""

    name: str
    index: int = 0
    count: int = 1


def find_blocks(names: Iterable[str], family: Family) -> dict[str, list[StoredBlock]]:
    """Return the family's current names -> the stored blocks, which may have older names."""
    blocks: dict[str, list[StoredBlock]] = {}
    for name in sorted(names):
        modern = name
        for old, new in family.renamed.items():
            modern = re.sub(old, new, modern)
        fused = next((whole for whole in family.fused if whole in modern), "")
        parts = [modern.replace(fused, part) for part in family.fused.get(fused, ())]
        for index, part in enumerate(parts):
            blocks.setdefault(part, []).append(StoredBlock(name, index, len(parts)))
        if not parts:
            blocks.setdefault(modern, []).append(StoredBlock(name))
    return blocks


class WeightReader:
    """The tensors of one model folder, under our names.

    Raises:
        ModelFolderError: a tensor is missing, unknown, of another shape, not finite, or differs
            from the tensor that it is tied to.
    """

    def __init__(
        self, folder: Path, stored: Mapping[str, Any], config: EncoderConfig, family: Family
    ) -> None:
        self.folder, self.stored, self.config, self.family = folder, stored, config, family
        self.stored_blocks = find_blocks(stored, family)
        self.blocks: dict[str, list[StoredBlock]] = {}
        self.copies = self._list_copies()

    def check(self, ours: str, shape: torch.Size) -> None:
        """Raise unless our tensor `ours` is stored and has this shape."""
        names = self.family.native_names(ours, self.config)
        copy = self.copies.get(ours)
        if copy in self.stored_blocks and names[0] not in self.stored_blocks:
            names = (copy,)  # transformers also accepts either name
        self.blocks[ours] = [self._locate(name) for name in names]
        rows = shape[0] // len(names) + self.family.row_offset(ours, self.config)
        for block in self.blocks[ours]:
            self._check_tensor(block.name, (block.count * rows, *shape[1:]))

    def check_rest(self) -> None:
        """Raise if there is another tensor, unless the family ignores it."""
        used = {block.name for blocks in self.blocks.values() for block in blocks}
        known = {*self.copies.values(), *self.family.constants(self.config), self.family.tied_bias}
        unknown = sorted(
            block.name
            for name, blocks in self.stored_blocks.items()
            for block in blocks
            if block.name not in used and name not in known and not self._is_ignored(name)
        )
        if unknown:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise self._error(
                f"{unknown[0]}{more}",
                f"is unknown to model_type {self.family.model_type} with this config.json",
            )

    def read(self, ours: str) -> Tensor:
        """Return our tensor `ours` in fp32, without the family's additional rows, in our order."""
        blocks = [self._read_block(block) for block in self.blocks[ours]]
        tensor = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        before = self.family.row_offset(ours, self.config)
        order = self.family.row_order(ours, self.config)
        tensor = tensor if order is None else tensor[order]
        return tensor[before:].clone() if before else tensor

    def check_copies(self, state: dict[str, Tensor]) -> None:
        """Raise unless second copies in the files have the values of the first."""
        for ours, name in self.copies.items():
            for block in self.stored_blocks.get(name, []):
                self._check_tensor(block.name, tuple(state[ours].shape))
                if not torch.equal(self._read_block(block), state[ours]):
                    raise self._error(
                        block.name,
                        f"differs from {self.blocks[ours][0].name}, but config.json has "
                        "tie_word_embeddings = True; set it to False if both are intended",
                    )

    def _list_copies(self) -> dict[str, str]:
        """Return our tensors -> their second names, if the decoder is tied."""
        if not self.config.tie_word_embeddings or "head.decoder" not in self.family.tensors:
            return {}
        (weight,) = self.family.native_names(TIED, self.config)
        bias = weight.removesuffix(".weight") + ".bias"
        return {_EMBEDDINGS: weight, **({DECODER_BIAS: bias} if self.family.tied_bias else {})}

    def _locate(self, name: str) -> StoredBlock:
        blocks = self.stored_blocks.get(name, [])
        if not blocks:
            raise self._error(name, "is missing from the weights")
        if len(blocks) > 1:
            raise self._error(blocks[0].name, f"is stored twice, also as {blocks[1].name}")
        return blocks[0]

    def _check_tensor(self, name: str, expected: tuple[int, ...]) -> None:
        shape, dtype = tuple(self.stored[name].get_shape()), self.stored[name].get_dtype()
        if shape != expected:
            raise self._error(name, f"has shape {shape}, but config.json implies {expected}")
        if dtype not in FLOATS:
            raise self._error(name, f"holds {dtype}, not one of {', '.join(FLOATS)}")

    def _read_block(self, block: StoredBlock) -> Tensor:
        stored = self.stored[block.name]
        rows = stored.get_shape()[0] // block.count
        start = block.index * rows
        tensor = stored[start : start + rows].to(torch.float32, copy=True)
        if not torch.isfinite(tensor).all():
            raise self._error(block.name, "holds NaN or infinity")
        return tensor

    def _is_ignored(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.family.ignored)

    def _error(self, name: str, rule: str) -> ModelFolderError:
        return ModelFolderError(f"{self.folder}: tensor {name} {rule}.")


def write_weights(path: Path, model: Network, family: Family) -> None:
    """Write the model's weights in fp32 under the family's names."""
    config, tensors = model.config, dict(family.constants(model.config))
    # A tied decoder shares the word embeddings, which are stored once, as in transformers.
    for ours, tensor in model.named_parameters():
        rows = tensor.detach().to("cpu", torch.float32)
        before = family.row_offset(ours, config)
        rows = F.pad(rows, (0, 0, before, 0)) if before else rows
        order = family.row_order(ours, config)
        rows = rows if order is None else rows[order.argsort()]
        names = family.native_names(ours, config)
        blocks = rows.chunk(len(names))
        tensors.update({n: b.contiguous() for n, b in zip(names, blocks, strict=True)})
    tensors.update(_copy_bias(tensors, config, family))
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # raised also for a full disk, and not an OSError
        raise ModelFolderError(f"{path} cannot be written: {error}.") from None


def _copy_bias(
    tensors: Mapping[str, Tensor], config: EncoderConfig, family: Family
) -> dict[str, Tensor]:
    """Return the decoder's bias under its second name, if its class reads that name."""
    if not family.tied_bias or (config.tie_word_embeddings and not family.repeats_bias):
        return {}
    (stored,) = family.native_names(DECODER_BIAS, config)
    (weight,) = family.native_names(TIED, config)
    names = {family.tied_bias, weight.removesuffix(".weight") + ".bias"}
    return {name: tensors[stored].clone() for name in names - {stored}}


def read_model(folder: Path, build: Callable[[], Kind], family: Family) -> Kind:
    """Build a model and load its weights; raise as `open_tensors` and `WeightReader`.

    `build` is called on the device ``meta``: nothing is allocated before all shapes are checked.
    """
    with torch.device("meta"):
        model = build()
    expected = dict(model.named_parameters())
    with open_tensors(folder) as stored:
        reader = WeightReader(folder, stored, model.config, family)
        for ours, tensor in expected.items():
            reader.check(ours, tensor.shape)
        reader.check_rest()
        state = {ours: reader.read(ours) for ours in expected}
        reader.check_copies(state)
    return model.assign(state)


def is_headless(folder: Path, config: EncoderConfig, family: Family) -> bool:
    """Return True if the files hold only an encoder, with the names of a class without a head.

    Embedding models, such as those of sentence-transformers, are stored in this form.
    """
    with open_tensors(folder) as stored:
        blocks = find_blocks(stored, family)
    (name, *_) = family.native_names(_EMBEDDINGS, config)
    return name not in blocks and name.removeprefix(family.prefix) in blocks


def holds_pair_head(folder: Path, config: EncoderConfig, family: Family) -> bool:
    """Return True if the files hold a head for pairs, whatever class is in ``config.json``.

    The published folders of BERT hold one, although their class has none.
    """
    if not family.pair_architecture:
        return config.sentence_pair_head
    with torch.device("meta"):
        parameters = [name for name, _ in SentencePairHead(config).named_parameters()]
    with open_tensors(folder) as stored:
        blocks = find_blocks(stored, family)
    names = [family.native_names(f"{PAIR_HEAD}{name}", config) for name in parameters]
    return all(name in blocks for (name,) in names)


def list_files(folder: Path) -> list[Path]:
    """Return ``model.safetensors``, or the parts in its index."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return [folder / name for name in _list_parts(folder / INDEX)]
    for name in PICKLES:
        if (folder / name).exists():
            raise ModelFolderError(
                f"{folder / name} is a pickle, and reading a pickle can run code. If you trust the "
                "folder, load it with transformers (DeBERTa: with legacy=False, for its head) and "
                f"call save_pretrained, which writes {WEIGHTS}."
            )
    raise ModelFolderError(f"{folder} is not a model folder: it holds no {WEIGHTS}.")


def _list_parts(path: Path) -> list[str]:
    try:
        names = sorted(set(map(str, read_json(path, MAX_INDEX_BYTES)["weight_map"].values())))
        if any(Path(name).name != name for name in names):
            raise ValueError("it names a file of another folder")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{path} is not an index of safetensors files: {error}.") from None
    return names
