"""Our tensors in files of theirs: found, checked one by one, read.

Everything about names and shapes is known to be right before any value is read.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from maskwright.artifact.native.family import DECODER_BIAS, Family
from maskwright.artifact.stored import FLOATS, StoredTensors
from maskwright.errors import ModelFolderError
from maskwright.model.config import EncoderConfig
from maskwright.model.pretraining import TIED

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
