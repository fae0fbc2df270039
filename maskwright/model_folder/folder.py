"""Writing and reading model folders, for maskwright and transformers.

A folder holds ``config.json``, ``model.safetensors``, ``tokenizer.json``, ``tokenizer_config.json``
and ``README.md``. If a class of transformers has the architecture, the folder uses its names, else
maskwright's own; then the card gives the reason.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from maskwright.config import convert
from maskwright.errors import ConfigError, ModelFolderError, show_value
from maskwright.files import find_stated, read_json, replacing_folder, write_json, write_text
from maskwright.model.config import GENERATOR, EncoderConfig
from maskwright.model.electra import Discriminator
from maskwright.model.masked_lm import BareEncoder, EncoderModel, MaskedLanguageModel, Network
from maskwright.model_folder.families import (
    FAMILIES,
    TRAINING_FIELDS,
    choose_headless,
    find_classifier,
    native_family,
    training_fields,
)
from maskwright.model_folder.model_card import HubMetadata, change_card, write_card
from maskwright.model_folder.native.bert_like import (
    DISCRIMINATORS,
    ELECTRA_DISCRIMINATOR,
    OWN_DISCRIMINATOR,
)
from maskwright.model_folder.native.family import Family, RawConfig, read_value
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.sentence_modules import FILES as SENTENCE_FILES
from maskwright.model_folder.weights import WEIGHTS, is_headless, read_model, write_weights
from maskwright.tokenizer.template import list_added_ids, wrap_inputs, wraps_inputs
from maskwright.tokenizer.tokenizer import Tokenizer

CONFIG, CARD, EXTRA_KEY = "config.json", "README.md", "maskwright"
MODEL = "model"  # the model folder in a run directory
DIMENSIONS = "matryoshka_dimensions"  # in config.json, as vLLM reads it: sizes of vectors
MAX_CONFIG_BYTES = 4 << 20
WRITTEN = {CONFIG, CARD, WEIGHTS, "tokenizer.json", "tokenizer_config.json"}
WRITTEN |= {name.partition("/")[0] for name in SENTENCE_FILES}


_LOGGER = logging.getLogger(__name__)
Kind = TypeVar("Kind", bound=EncoderModel, covariant=True)


@dataclass(frozen=True)
class Loaded(Generic[Kind]):
    """The contents of a model folder; `add_special_tokens`: True if inputs are [CLS] … [SEP]."""

    model: Kind
    tokenizer: Tokenizer
    add_special_tokens: bool

    def wrap(self, ids: list[int]) -> list[int]:
        """Return the ids as model input: with [CLS] and [SEP] if the model was trained so."""
        tokenizer = self.tokenizer
        return [tokenizer.cls_id, *ids, tokenizer.sep_id] if self.add_special_tokens else ids


LoadedModel = Loaded[MaskedLanguageModel]
LoadedEncoder = Loaded[EncoderModel]


@dataclass(frozen=True)
class FolderDescription:
    """A model folder before its weights are read."""

    config: EncoderConfig
    family: Family
    tokenizer: Tokenizer

    @property
    def is_discriminator(self) -> bool:
        """True if its head detects replaced tokens and does not predict tokens."""
        return self.family in DISCRIMINATORS.values()


def save_model(
    folder: Path | str,
    model: Network,
    tokenizer: Tokenizer,
    card: str | None = None,
    *,
    add_special_tokens: bool = True,
    max_length: int | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Write a model folder atomically, and replace an older one::

        model, tokenizer = load_model("runs/mine")
        save_model("models/copy", model, tokenizer)

    Args:
        folder: the folder to write; if it exists, it must be empty or a model folder.
        model: a model on any device; the folder of a discriminator, or of an encoder without a
            head, has no head that predicts tokens.
        tokenizer: the tokenizer that the model was trained with.
        card: Markdown about data, recipe and results, for the card.
        add_special_tokens: True if the model was trained on [CLS] … [SEP] around every segment.
        max_length: the longest input in tokens; default: that of the model.
        finish: called with the folder before it replaces another, to add to it.

    Raises:
        ModelFolderError: `folder` holds other files.
    """
    folder = Path(folder)
    check_replaceable(folder)
    tokenizer = wrap_inputs(tokenizer, add_special_tokens)
    config = with_ids_of(model.config, tokenizer)
    if isinstance(model, Discriminator):
        family = DISCRIMINATORS.get(config.model_type or "", ELECTRA_DISCRIMINATOR)
        family, reason = choose_headless(config, family, OWN_DISCRIMINATOR)
    elif isinstance(model, BareEncoder):
        family, reason = choose_headless(config, FAMILIES.get(config.model_type or "", OWN), OWN)
        family = family.as_encoder()
    else:
        family, reason = native_family(config)
        family = family or OWN
    fields, card = family.write_config(config), write_card(card, config, family, reason)
    write_folder(folder, model, config, tokenizer, family, fields, card, max_length, finish=finish)


def write_folder(
    folder: Path,
    model: Network,
    config: EncoderConfig,
    tokenizer: Tokenizer,
    family: Family,
    fields: Mapping[str, Any],
    card: str,
    max_length: int | None = None,
    facts: Mapping[str, Any] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Write the files of a model folder atomically; see `save_model` and `save_classifier`.

    Args:
        fields: the content of ``config.json`` in the names of the family.
        facts: further entries of maskwright's section of ``config.json``.
    """
    longest = min(max_length or config.max_position_embeddings, config.max_position_embeddings)
    extra = {
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "training": training_fields(config, family),
        **(facts or {}),
    }
    with replacing_folder(folder) as temporary:
        with_types = config.type_vocab_size > 1
        tokenizer.save(temporary, longest, with_types=with_types)
        write_json(temporary / CONFIG, {**fields, "dtype": "float32", EXTRA_KEY: extra})
        write_weights(temporary / WEIGHTS, model, family)
        write_text(temporary / CARD, card)
        if finish is not None:
            finish(temporary)


def with_ids_of(config: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
    """Return the architecture with the special token ids of its tokenizer."""
    return dataclasses.replace(
        config,
        cls_token_id=tokenizer.cls_id,
        sep_token_id=tokenizer.sep_id,
        mask_token_id=tokenizer.mask_id,
    )


def find_model(folder: Path | str) -> Path:
    """Return the model folder of a run directory, or any other folder unchanged."""
    folder = Path(folder)
    inner = folder / MODEL
    return inner if inner.is_dir() and not (folder / CONFIG).exists() else folder


def load_model(folder: Path | str) -> tuple[MaskedLanguageModel, Tokenizer]:
    """Return the model (in evaluation mode, on the CPU) and its tokenizer; see `open_model`.

    ::

        model, tokenizer = load_model("runs/mine")  # a torch.nn.Module
    """
    loaded = open_model(folder)
    return loaded.model, loaded.tokenizer


def open_model(folder: Path | str) -> LoadedModel:
    """Read a model folder written by maskwright, or by transformers for a supported class.

    Args:
        folder: the model folder, or a run directory that contains one.

    Raises:
        ModelFolderError: the folder does not exist or predicts no tokens (use `open_encoder`); a
            field of ``config.json`` is missing, wrong or not supported; a tensor is missing,
            unknown, of another shape or not finite; the weights are a pickle; the tokenizer is not
            the one of training, or adds other tokens than [CLS] and [SEP] around a text.
    """
    folder = find_model(folder)
    described = describe_folder(folder)
    if is_headless(folder, described.config, described.family):
        raise ModelFolderError(
            f"{folder} has no head that predicts masked tokens. Use maskwright embed, or train a "
            f"head: maskwright pretrain --init-from {folder}."
        )
    wraps = check_wrapping(described.tokenizer, folder)
    model = read_model(folder, lambda: MaskedLanguageModel(described.config), described.family)
    return LoadedModel(model.eval(), described.tokenizer, wraps)


def open_encoder(folder: Path | str) -> LoadedEncoder:
    """Read the encoder of a model folder with any head; raise as `open_model`."""
    folder = find_model(folder)
    described = _describe_any(folder)
    config, family = described.config, described.family
    is_bare = not described.is_discriminator and is_headless(folder, config, family)
    if not described.is_discriminator and not is_bare:
        return open_model(folder)
    wraps = check_wrapping(described.tokenizer, folder)
    if is_bare:
        model: EncoderModel = read_bare(folder, config, family)
    else:
        model = read_model(folder, lambda: Discriminator(config), family)
    return LoadedEncoder(model.eval(), described.tokenizer, wraps)


def is_encoder(folder: Path | str) -> bool:
    """Return True if a model folder has no head that predicts or detects tokens."""
    described = _describe_any(folder := find_model(folder))
    is_bare = is_headless(folder, described.config, described.family)
    return is_bare and not described.is_discriminator


def read_bare(folder: Path, config: EncoderConfig, family: Family) -> BareEncoder:
    """Read the encoder of a folder without a head (`is_headless`)."""
    config = dataclasses.replace(config, sentence_pair_head=False)
    return read_model(folder, lambda: BareEncoder(config), family.as_encoder())


def check_wrapping(tokenizer: Tokenizer, folder: Path) -> bool:
    """Return True if inputs are [CLS] … [SEP], False if they have no special tokens; else raise."""
    wraps = wraps_inputs(tokenizer)
    if wraps is None:
        added = " ".join(tokenizer.tokens(list_added_ids(tokenizer)))
        raise ModelFolderError(
            f"{folder}: its tokenizer adds {added} to a text, but only {tokenizer.cls_token} and "
            f"{tokenizer.sep_token} around it, or nothing, are supported. Change the "
            "post_processor in tokenizer.json, if you know what the model was trained on."
        )
    return wraps


def describe_folder(folder: Path) -> FolderDescription:
    """Read a model folder without its weights; raise as `open_model`."""
    described = _describe_any(folder)
    if described.is_discriminator:
        generator = folder.absolute().parent / GENERATOR
        verb = "use its generator" if generator.is_dir() else "restore its generator as"
        raise ModelFolderError(
            f"{folder} is a discriminator ({described.family.architecture}), which cannot predict "
            f"masked tokens. Use maskwright embed, or {verb} {generator}."
        )
    return described


def _describe_any(folder: Path) -> FolderDescription:
    raw = read_config_file(folder)
    extra = find_stated(raw, {}, EXTRA_KEY)
    model_type, classes = show_value(raw.get("model_type")), list_classes(raw)
    family, discriminator = FAMILIES.get(model_type), DISCRIMINATORS.get(model_type)
    if discriminator and discriminator.architecture in classes:
        family = discriminator
    if labels := find_classifier(classes):
        level, native = labels
        raise ModelFolderError(
            f"{folder} labels {level}s ({native.head.architecture}) and has no head that predicts "
            "masked tokens. Use maskwright predict, or evaluate --suite labels."
        )
    if family is None:
        raise ModelFolderError(
            f"{folder / CONFIG}: model_type = {model_type} is not supported. "
            f"Supported are {', '.join(sorted(FAMILIES))}."
        )
    config, tokenizer = read_architecture(raw, extra, family, folder), Tokenizer.load(folder)
    check_tokenizer(tokenizer, config, extra, folder)
    return FolderDescription(config, family, tokenizer)


def list_classes(raw: Mapping[str, Any]) -> list[str]:
    """Return the classes of transformers in a ``config.json``."""
    classes = raw.get("architectures")
    return [str(name) for name in classes] if isinstance(classes, list) else []


def read_architecture(
    raw: RawConfig, extra: RawConfig, family: Family, folder: Path
) -> EncoderConfig:
    """Return the architecture in a family's ``config.json``, with the fields for training.

    Raises:
        ModelFolderError: a field is missing, wrong or not supported.
    """
    try:
        config = family.read_config(raw)
        kept = find_stated(extra, {}, "training")
        if not isinstance(kept, dict):
            raise ConfigError(f"{EXTRA_KEY}.training", kept, "must hold fields and values")
        training = {
            name: read_value(kept[name], name, name) for name in TRAINING_FIELDS if name in kept
        }
        return dataclasses.replace(config, **training)
    except ConfigError as error:
        message = str(error).replace("model.", "")
        raise ModelFolderError(f"{folder / CONFIG}: {message}") from None


def read_config_file(folder: Path) -> RawConfig:
    """Return the ``config.json`` of a folder; raise ModelFolderError if it holds none.

    Fields differ by family, so every value is checked where it is used.
    """
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder.")
    path = folder / CONFIG
    if (folder / "adapter_config.json").is_file() and not path.is_file():
        raise ModelFolderError(
            f"{folder} is an adapter of PEFT, not a whole model. Merge it first: "
            "PeftModel.from_pretrained(model, folder).merge_and_unload().save_pretrained(merged)."
        )
    if not path.is_file():
        raise ModelFolderError(f"{folder} is not a model folder: it holds no {CONFIG}.")
    try:
        raw = read_json(path, MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}.") from None
    if not isinstance(raw, dict) or not isinstance(find_stated(raw, {}, EXTRA_KEY), dict):
        raise ModelFolderError(f"{path} does not hold a model's configuration.")
    return raw


def read_dimensions(folder: Path) -> list[int]:
    """Return the sizes that the first dimensions of vectors were trained for, the width included;
    empty if the folder has none.

    Raises:
        ModelFolderError: they are not a list of sizes.
    """
    sizes = find_stated(read_config_file(folder), [], DIMENSIONS)
    try:
        found = sorted(set(convert(sizes, tuple[int, ...], DIMENSIONS)))
        if found and found[0] < 1:
            raise ConfigError(DIMENSIONS, found[0], "must be at least 1", "Correct it.")
        return found
    except ConfigError as error:
        raise ModelFolderError(f"{folder / CONFIG}: {error}") from None


def write_dimensions(folder: Path, sizes: Sequence[int]) -> None:
    """Write what `read_dimensions` returns; nothing if there are no sizes."""
    if sizes:
        write_json(folder / CONFIG, {**read_config_file(folder), DIMENSIONS: sorted({*sizes})})


def check_tokenizer(
    tokenizer: Tokenizer, config: EncoderConfig, extra: RawConfig, folder: Path
) -> None:
    """Raise ModelFolderError unless this is the tokenizer that the model was trained with."""
    trained_with = show_value(extra.get("tokenizer_fingerprint", tokenizer.fingerprint))
    if tokenizer.fingerprint != trained_with and _without_added(tokenizer) == trained_with:
        _LOGGER.warning(
            "%s: tokens were added to its vocabulary after training: it has %d now.",
            folder,
            tokenizer.vocab_size,
        )
    elif tokenizer.fingerprint != trained_with:
        raise ModelFolderError(
            f"{folder}: tokenizer fingerprint {tokenizer.fingerprint[:4]}… is not the one this "
            f"model was trained with ({trained_with[:4]}…). Restore its tokenizer.json."
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelFolderError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model has only "
            f"vocab_size = {config.vocab_size} word embeddings."
        )


def _without_added(tokenizer: Tokenizer) -> str:
    """Return the fingerprint without the tokens that transformers' ``add_tokens`` added.

    transformers numbers them after the model's vocabulary, and keeps our section of config.json.
    """
    description, known = tokenizer.description, tokenizer.backend.get_vocab(with_added_tokens=False)
    kept = [token for token in description["added_tokens"] if token["content"] in known]
    before = Tokenizer({**description, "added_tokens": kept}, tokenizer.special_tokens)
    return before.fingerprint


def check_replaceable(folder: Path) -> None:
    """Raise ModelFolderError if `folder` holds files that are not those of a model folder."""
    if not folder.name:
        raise ModelFolderError(f"a model cannot replace the folder {folder}. Name one in it.")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file. Choose another folder for the model.")
    strange = sorted(path.name for path in folder.iterdir() if path.name not in WRITTEN)
    if strange:
        raise ModelFolderError(
            f"{folder} holds {strange[0]}, which is not a file of a model folder. Choose another "
            "folder, or empty this one."
        )


def read_card(folder: Path) -> str | None:
    """Return the model card, or None; raise ModelFolderError if it is not text, or not inside."""
    path = folder / CARD
    check_inside(folder, path)
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}.") from None


def adapt_card(folder: Path, metadata: HubMetadata, ending: str) -> None:
    """Change the metadata and the section "Use" of a card; raise ModelFolderError if damaged."""
    path = folder / CARD
    try:
        write_text(path, change_card(path.read_text(encoding="utf-8"), metadata, ending))
    except ValueError as error:
        raise ModelFolderError(f"the model card {CARD} is damaged: {error}.") from None


def check_inside(folder: Path, path: Path) -> None:
    """Raise ModelFolderError unless a file is in `folder`, also after links are resolved.

    Files of a folder are published, and a link in a downloaded folder could point to any private
    file. Links in the hub's cache point to its folder ``blobs`` and are allowed.
    """
    root, found = folder.resolve(), path.resolve()
    roots = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(found.is_relative_to(one) for one in roots):
        raise ModelFolderError(
            f"{path} is a link to {found}, which is not in the model folder, so it may be private. "
            "Replace the link by the file."
        )
