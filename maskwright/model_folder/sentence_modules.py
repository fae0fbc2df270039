"""Folders of sentence-transformers: what they state about vectors beside the weights.

``modules.json`` lists the transformer, its pooling and other modules; ``sentence_bert_config.json``
has the longest input and the case; ``config_sentence_transformers.json`` the prompts, the
similarity and the dimensions. The library's own names and defaults are kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from maskwright.config import from_mapping
from maskwright.errors import ConfigError, InputError, ModelFolderError, show_value
from maskwright.files import JsonObject, find_stated, read_json, read_object, write_json
from maskwright.tokenizer.files import SENTENCE_CONFIG, read_max_length

Pooling = Literal["mean", "cls"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

MODULES_NAME, SHARED_CONFIG = "modules.json", "config_sentence_transformers.json"
POOLING_FOLDER, _LENGTHS = "1_Pooling", "sentence_bert_config.json"
# Beside the weights in the folders that `write_modules` writes.
FILES = (MODULES_NAME, SHARED_CONFIG, _LENGTHS, f"{POOLING_FOLDER}/config.json")
QUERY, DOCUMENT = "query", "document"  # the prompts that the library has without a statement, too
_MAX_MODULES_BYTES = 1 << 20
_MODE = "pooling_mode"  # of sentence-transformers 6: a name; of older ones: _cls_token, … true
_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
_SHARED = ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim")
# Fields of the transformer's module that change its inputs or its outputs.
_UNSUPPORTED = (
    *("query_length", "document_length", "query_expansion", "processing_kwargs"),
    *("tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"),
    "tokenizer_name_or_path",
)
_TEXT_OUTPUT = {"method": "forward", "method_output_name": "last_hidden_state"}


@dataclass(frozen=True)
class VectorSettings:
    """How texts become vectors; without a statement, the mean of all tokens, of length 1.

    Attributes:
        pooling: ``mean`` of all tokens with [CLS] and [SEP], or ``cls``, the first token.
        normalize: scale vectors to length 1, before they are truncated.
        max_seq_length: the longest input in tokens; None: that of the model.
        do_lower_case: lowercase texts, which the tokenizer may not do.
        prompts: texts to put before a text, by name.
        default_prompt_name: the prompt of texts without a named prompt; None: no prompt.
        similarity_fn_name: the similarity of two vectors.
        truncate_dim: the number of first dimensions to keep; None: all.
        is_stated: True if the folder is one of sentence-transformers.
    """

    pooling: Pooling = "mean"
    normalize: bool = True
    max_seq_length: int | None = None
    do_lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity = "cosine"
    truncate_dim: int | None = None
    is_stated: bool = False

    def to_json(self) -> JsonObject:
        """Return the settings of a folder as `parse_settings` reads them."""
        return {name: value for name, value in asdict(self).items() if name != "is_stated"}

    def find_prompt(self, name: str | None = None) -> str:
        """Return the prompt of this name, as the library's ``encode(prompt_name=…)``.

        Without a name the default; ``query`` and ``document`` are empty if they are not stated, and
        so is the prompt of the name ``""``.

        Raises:
            InputError: there is no such prompt.
        """
        name = self.default_prompt_name if name is None else name
        known = {"": "", QUERY: "", DOCUMENT: "", **self.prompts}
        if name is None:
            return ""
        if name not in known:
            rule = f"must be one of {', '.join(filter(None, known))}"
            raise InputError(f"prompt_name = {name!r} {rule}, or empty for none.")
        return known[name]


def find_transformer(folder: Path) -> Path:
    """Return the transformer of a folder of sentence-transformers: its first module."""
    path = Path(next(iter(_read_modules(folder).values()), ""))
    return folder if path.is_absolute() or ".." in path.parts else folder / path


def _read_modules(folder: Path) -> dict[str, str]:
    """Return the classes of the modules of sentence-transformers, with their folders."""
    path = folder / MODULES_NAME
    try:
        modules = read_json(path, _MAX_MODULES_BYTES)
        return {str(one["type"]).rpartition(".")[2]: str(one["path"]) for one in modules}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelFolderError(f"{path} is not a list of modules: {error}. Restore it.") from None


def find_modules(folder: Path) -> Path | None:
    """Return the folder of sentence-transformers that a model folder is, or is a part of."""
    root = folder.parent if folder.name.startswith("0_") else folder  # of older versions
    return root if (root / MODULES_NAME).is_file() else None


def read_settings(folder: Path, pooling: Pooling | None = None) -> VectorSettings:
    """Return what a model folder states about its vectors.

    Args:
        pooling: the user's choice, which replaces the folder's modules that are not supported.

    Raises:
        ModelFolderError: a file is damaged, or a module or a value is not supported.
        TokenizerError: the longest input is not a valid length.
    """
    longest = read_max_length(folder)
    # transformers writes 1e30 if it knows no limit.
    length = None if longest is None or longest > 1 << 30 else int(longest)
    root = find_modules(folder)
    if root is None:
        return VectorSettings(pooling or "mean", max_seq_length=length)
    path = root / SHARED_CONFIG
    shared = _read(path) if path.is_file() else {}
    stated = {
        **{name: shared[name] for name in _SHARED if shared.get(name) is not None},
        "pooling": find_pooling(folder) if pooling is None else pooling,
        "normalize": "Normalize" in _read_modules(root),
        "max_seq_length": length,
        "do_lower_case": _read_case(folder),
    }
    settings = parse_settings(stated, path)
    _check_prompt_is_pooled(settings, root)
    return settings


def parse_settings(stated: Mapping[str, Any], path: Path) -> VectorSettings:
    """Return the settings that are stated by field.

    Raises:
        ModelFolderError: a value of the file at `path` is wrong.
    """
    raw: Any = find_stated(stated, {}, "prompts")
    # A prompt may be null, which is no prompt.
    prompts = {name: raw[name] or "" for name in raw} if isinstance(raw, dict) else {"": raw}
    if not all(isinstance(text, str) for text in prompts.values()) or not isinstance(raw, dict):
        raise ModelFolderError(f"{path}: prompts = {show_value(raw)} must be texts by name.")
    try:
        plain = {name: value for name, value in stated.items() if name != "prompts"}
        found = replace(from_mapping(VectorSettings, plain), prompts=prompts, is_stated=True)
        if found.default_prompt_name not in (None, QUERY, DOCUMENT, *prompts):
            rule = "is not one of the prompts"
            raise ConfigError("default_prompt_name", found.default_prompt_name, rule, "Correct it.")
        if found.truncate_dim is not None and found.truncate_dim < 1:
            raise ConfigError("truncate_dim", found.truncate_dim, "must be at least 1")
    except ConfigError as error:
        raise ModelFolderError(f"{path}: {error}") from None
    return found


def _check_prompt_is_pooled(settings: VectorSettings, root: Path) -> None:
    """Raise ModelFolderError for vectors without the tokens of a prompt."""
    path = root / _read_modules(root).get("Pooling", POOLING_FOLDER) / "config.json"
    has_prompts = any(settings.prompts.values()) and path.is_file()
    if has_prompts and _read(path).get("include_prompt", True) is not True:
        rule = "include_prompt = false, vectors without the tokens of the prompt, is"
        raise ModelFolderError(f"{path}: {rule} not supported. Use sentence-transformers.")


def _read(path: Path) -> JsonObject:
    try:
        return read_object(path, _MAX_MODULES_BYTES)
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}. Restore it.") from None


def _read_case(folder: Path) -> bool:
    """Return True if the transformer lowercases texts; raise ModelFolderError if it does more than
    that to inputs or outputs.
    """
    path = next(iter(sorted(folder.glob(SENTENCE_CONFIG))), None)
    if path is None:
        return False
    stated = _read(path)
    others: JsonObject = {name: stated[name] for name in _UNSUPPORTED if stated.get(name)}
    if stated.get("transformer_task", "feature-extraction") != "feature-extraction":
        others["transformer_task"] = stated["transformer_task"]
    modes: Any = find_stated(stated, {"text": _TEXT_OUTPUT}, "modality_config")
    if not isinstance(modes, dict) or modes.get("text") != _TEXT_OUTPUT:
        others["modality_config"] = modes
    for name, value in others.items():
        rule = f"{name} = {show_value(value)} is not supported"
        raise ModelFolderError(f"{path}: {rule}. Use sentence-transformers for this model.")
    lower = find_stated(stated, False, "do_lower_case")
    if not isinstance(lower, bool):
        rule = f"do_lower_case = {show_value(lower)} must be true or false"
        raise ModelFolderError(f"{path}: {rule}. Correct it.")
    return lower


def find_pooling(folder: Path) -> Pooling:
    """Return the pooling that ``modules.json`` names, else ``mean``; raise ModelFolderError if
    there are other modules or poolings.
    """
    if (root := find_modules(folder)) is None:
        return "mean"
    modules = _read_modules(root)
    path, modes = root / MODULES_NAME, modules.keys() - {"Transformer", "Pooling", "Normalize"}
    if not modes and "Pooling" in modules:
        path = root / modules["Pooling"] / "config.json"
        modes = {
            str(value) if key == _MODE else key.removeprefix(f"{_MODE}_").partition("_token")[0]
            for key, value in _read(path).items()
            if key.startswith(_MODE) and value
        }
    if modes - {"mean", "cls"} or len(modes) > 1:
        raise ModelFolderError(
            f"{path} names {', '.join(sorted(modes))}; only Transformer, Normalize, and Pooling by "
            "mean or cls, are supported. maskwright embed --pooling mean, or cls, ignores it."
        )
    return "cls" if modes == {"cls"} else "mean"  # no mode: the library's default


def write_modules(folder: Path, width: int, settings: VectorSettings, **more: Any) -> None:
    """Make a model folder one of sentence-transformers, with these settings.

    Every version of the library since 2 reads this format, only version 6 its own.

    Args:
        width: the size of a token's vector.
        more: further entries of ``sentence_bert_config.json``.
    """
    kinds = [("", "Transformer"), (POOLING_FOLDER, "Pooling")]
    kinds += [("2_Normalize", "Normalize")] * settings.normalize
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    inputs = {name: getattr(settings, name) for name in ("max_seq_length", "do_lower_case")}
    write_json(folder / _LENGTHS, {**inputs, **more})
    shared = {name: value for name, value in asdict(settings).items() if name in _SHARED}
    write_json(folder / SHARED_CONFIG, shared)
    (folder / POOLING_FOLDER).mkdir()
    modes = {f"{_MODE}_{mode}": mode.startswith(f"{settings.pooling}_tok") for mode in _MODES}
    write_json(
        folder / POOLING_FOLDER / "config.json", {"word_embedding_dimension": width, **modes}
    )
    write_json(folder / MODULES_NAME, modules)
