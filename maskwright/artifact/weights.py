"""Weights of a model folder: ours to theirs and back. Never pickle."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from maskwright.artifact.native.family import DECODER_BIAS, Family
from maskwright.artifact.reader import WeightReader, find_places
from maskwright.artifact.stored import StoredTensors
from maskwright.errors import ModelFolderError, show_value
from maskwright.files import read_json
from maskwright.model.classifier import Classifier
from maskwright.model.config import EncoderConfig
from maskwright.model.discriminator import Discriminator
from maskwright.model.head_config import HeadConfig
from maskwright.model.heads import SentencePairHead
from maskwright.model.pretraining import PAIR_HEAD, TIED, MaskedLanguageModel

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt")
MAX_INDEX_BYTES = 16 << 20
_PART = re.compile(r"\w[\w.-]*\.safetensors")  # no path, so nothing outside the folder


def write_weights(
    path: Path, model: MaskedLanguageModel | Discriminator | Classifier, family: Family
) -> None:
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
    return MaskedLanguageModel.around(config, _read_tensors(folder, expected, config, family))


def read_discriminator(folder: Path, config: EncoderConfig, family: Family) -> Discriminator:
    """The same for a discriminator; raises as `read_model` does."""
    with torch.device("meta"):
        expected = dict(Discriminator(config).named_parameters())
    return Discriminator.around(config, _read_tensors(folder, expected, config, family))


def read_classifier(
    folder: Path, config: EncoderConfig, head: HeadConfig, family: Family
) -> Classifier:
    """The same for a classifier; raises as `read_model` does."""
    with torch.device("meta"):
        expected = dict(Classifier(config, head).named_parameters())
    return Classifier.around(config, head, _read_tensors(folder, expected, config, family))


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
