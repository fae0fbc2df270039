"""Folders of sentence-transformers: the transformer, its pooling, and other modules."""

from pathlib import Path
from typing import Any, Literal

from maskwright.errors import ModelFolderError
from maskwright.files import read_json, read_object, write_json

MODULES_NAME = "modules.json"
_MAX_MODULES_BYTES = 1 << 20
_MODE = "pooling_mode"  # of sentence-transformers 6: a name; of older ones: _cls_token, … true
_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")


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


def find_pooling(folder: Path) -> Literal["mean", "cls"]:
    """Return the pooling that ``modules.json`` names, else ``mean``; raise ModelFolderError if
    there are other modules or poolings.
    """
    if (root := find_modules(folder)) is None:
        return "mean"
    modules = _read_modules(root)
    path, modes = root / MODULES_NAME, modules.keys() - {"Transformer", "Pooling", "Normalize"}
    if not modes and "Pooling" in modules:
        path = root / modules["Pooling"] / "config.json"
        try:
            modes = {
                str(value) if key == _MODE else key.removeprefix(f"{_MODE}_").partition("_token")[0]
                for key, value in read_object(path, _MAX_MODULES_BYTES).items()
                if key.startswith(_MODE) and value
            }
        except (OSError, ValueError) as error:
            raise ModelFolderError(f"{path} cannot be read: {error}. Restore it.") from None
    if modes - {"mean", "cls"} or len(modes) > 1:
        raise ModelFolderError(
            f"{path} names {', '.join(sorted(modes))}; only Transformer, Normalize, and Pooling by "
            "mean or cls, are supported. maskwright embed --pooling mean, or cls, ignores it."
        )
    return "cls" if modes == {"cls"} else "mean"  # no mode: the library's default


def write_modules(
    folder: Path, width: int, pooling: Literal["mean", "cls"], max_length: int, **settings: Any
) -> None:
    """Make a model folder one of sentence-transformers, with vectors of length 1.

    Every version of the library since 2 reads this format, only version 6 its own.
    """
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    lengths = {"max_seq_length": max_length, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", {**lengths, **settings})
    shared: dict[str, Any] = {"prompts": {}, "default_prompt_name": None}
    shared["similarity_fn_name"] = "cosine"
    write_json(folder / "config_sentence_transformers.json", shared)
    (folder / "1_Pooling").mkdir()
    modes = {f"{_MODE}_{mode}": mode.startswith(f"{pooling}_tok") for mode in _MODES}
    config = {"word_embedding_dimension": width, **modes}
    write_json(folder / "1_Pooling" / "config.json", config)
    write_json(folder / MODULES_NAME, modules)
