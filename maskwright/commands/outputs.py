"""Where a command is to write: nothing that is there already is replaced."""

from pathlib import Path

from maskwright.errors import InputError


def check_new_folder(out: Path) -> None:
    """Lets pass a folder that does not exist, or is empty.

    Raises:
        InputError: it holds something, or it is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out = {out} exists already. Choose another folder, or remove it.")


def check_new_file(out: Path) -> None:
    """Lets pass a file that does not exist and can be made.

    Raises:
        InputError: it exists, or there is no folder for it.
    """
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out = {out}: there is no folder to write it to")
    if out.is_dir():
        raise InputError(f"--out = {out} is a folder. Name a file in it.")
    if out.exists():
        raise InputError(f"--out = {out} exists already. Choose another file, or remove it.")
