"""What the folders of all exports have in common: the model's files, a card, a record."""

from pathlib import Path
from typing import Any

from maskwright.errors import ExportError, ModelFolderError
from maskwright.files import write_text
from maskwright.model_folder.card import change_card
from maskwright.model_folder.folder import CARD, LoadedModel, save_model
from maskwright.model_folder.weights import WEIGHTS

RECORD = "export.json"
_MAX_CARD_BYTES = 4 << 20


def write_model_folder(folder: Path, loaded: LoadedModel, with_weights: bool = True) -> None:
    """Writes a model folder as `save_model` does, or all of one but the weights."""
    save_model(folder, loaded.model, loaded.tokenizer, add_special_tokens=loaded.add_special_tokens)
    if not with_weights:
        (folder / WEIGHTS).unlink()


def read_card(folder: Path) -> str | None:
    """The model card in a folder that anybody may have written, if there is one.

    Raises:
        ModelFolderError: it is no text, or enormous, or a link that leads out of the folder.
    """
    path = folder / CARD
    check_inside(folder, path)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        content = file.read(_MAX_CARD_BYTES + 1)
    try:
        if len(content) > _MAX_CARD_BYTES:
            raise ValueError(f"it has more than {_MAX_CARD_BYTES:,} bytes")
        return content.decode()
    except ValueError as error:
        raise ModelFolderError(f"{path} cannot be read: {error}.") from None


def check_inside(folder: Path, path: Path) -> None:
    """Raise unless a file lies in `folder` also after links are followed.

    What is published or exported is what the folder holds: a link in a folder from elsewhere may
    lead to any file of this machine. Links of the hub's own cache lead to the blobs beside it.

    Raises:
        ModelFolderError: the file is elsewhere.
    """
    root, found = folder.resolve(), path.resolve()
    roots = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(found.is_relative_to(one) for one in roots):
        raise ModelFolderError(
            f"{path} is a link to {found}, which is not in the model folder, so it may be private. "
            "Put the file itself there."
        )


def adapt_card(folder: Path, original: str | None, metadata: dict[str, Any], ending: str) -> None:
    """Puts the model's own card into `folder`, with what is different about this export.

    Args:
        original: the card of the model; None = the one that `folder` holds already.

    Raises:
        ModelFolderError: the card is damaged.
    """
    path = folder / CARD
    card = path.read_text(encoding="utf-8") if original is None else original
    try:
        write_text(path, change_card(card, metadata, ending))
    except ValueError as error:
        raise ModelFolderError(f"the model card {CARD} is damaged: {error}.") from None


def check_new(folder: Path) -> None:
    """Lets pass a folder that does not exist, or is empty.

    Raises:
        ExportError: it holds something, or it is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} exists already. Choose another --out, or remove it.")


def list_sizes(folder: Path) -> dict[str, int]:
    """Bytes of each file, by its name in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
