"""A model folder on the Hugging Face hub: checked first, then uploaded in one commit.

Only the files of the model go there, whatever else lies in the folder; the model card gets the
metadata that the hub asks for. Weights and tokenizer files of an older model that libraries would
read beside or instead of the new ones go in the same commit.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskwright.errors import InputError, ModelFolderError
from maskwright.files import hash_file, read_json
from maskwright.interop.folders import check_inside, read_card
from maskwright.interop.libraries import import_library, quiet
from maskwright.model_folder.card import (
    PLACE,
    change_card,
    describe_for_hub,
    read_example,
    split_card,
    write_card,
)
from maskwright.model_folder.families import native_family
from maskwright.model_folder.folder import CARD, CONFIG, open_model
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.weights import INDEX, MAX_INDEX_BYTES, WEIGHTS

_FILES = (CONFIG, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# What libraries look for in a model folder; any of it that is not uploaded is of an older model.
_OF_A_MODEL = re.compile(
    r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)|(tf_model\.h5|flax_model\.msgpack)"
    r"|(model\.safetensors|pytorch_model\.bin|tf_model\.h5|flax_model\.msgpack)\.index\.json"
    r"|tokenizer\.json|tokenizer\.model|spiece\.model|sentencepiece\.bpe\.model|vocab\.(txt|json)"
    r"|merges\.txt|(special_tokens_map|added_tokens|tokenizer_config)\.json"
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MODEL = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")  # the oldest have no owner
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_LOGIN = "log in with: hf auth login; or set HF_TOKEN to a token that may write"


@dataclass(frozen=True)
class UploadFile:
    """One file: where it is, or for the card what it says."""

    name: str
    content: Path | bytes
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Upload:
    """All that would be in the commit."""

    repository: str
    files: list[UploadFile]

    @property
    def card(self) -> str:
        """The model card as the hub would show it."""
        [content] = [file.content for file in self.files if file.name == CARD]
        assert isinstance(content, bytes)
        return content.decode()

    @property
    def example(self) -> tuple[str, ...]:
        """The texts of the example in the card, which are from held-out text; () without one."""
        return read_example(self.card)

    def describe(self) -> list[str]:
        """A line for each file: name, bytes and sha256."""
        return [f"{file.name:<24} {file.num_bytes:>14,}  {file.sha256}" for file in self.files]


@dataclass(frozen=True)
class Published:
    """What has happened: where the model is, and which files of an older one are gone."""

    url: str
    removed: list[str]


def plan_upload(
    folder: Path | str,
    repository: str,
    *,
    license_name: str | None = None,
    languages: Sequence[str] = (),
    base_model: str | None = None,
) -> Upload:
    """Opens and checks the model in `folder`, and says what would be uploaded; needs no network.

    Args:
        repository: OWNER/NAME.
        license_name: as the hub calls it, such as ``apache-2.0``.
        languages: as the hub calls them, such as ``en``.
        base_model: the model on the hub that this one was initialised from.

    Raises:
        InputError: a name that is none.
        ModelFolderError: `folder` is not a model folder, its card is damaged, or a file of it is a
            link that leads out of the folder.
    """
    folder = Path(folder)
    _check_name("--repo", repository, _REPOSITORY, "OWNER/NAME")
    for flag, given, pattern, form in (
        ("--license", [license_name] if license_name else [], _WORD, "a name such as apache-2.0"),
        ("--language", languages, _WORD, "a code such as en"),
        ("--base-model", [base_model] if base_model else [], _MODEL, "OWNER/NAME or NAME"),
    ):
        for value in given:
            _check_name(flag, value, pattern, form)
    metadata = {"license": license_name, "language": list(languages), "base_model": base_model}
    card = _write_card(folder, {name: value for name, value in metadata.items() if value})
    card = card.replace(PLACE.encode(), repository.encode())
    paths = [folder / name for name in (*_FILES, *_list_weights(folder))]
    for path in paths:
        check_inside(folder, path)
    files = [
        UploadFile(path.name, path, path.stat().st_size, hash_file(path))
        for path in paths
        if path.is_file()
    ]
    card_file = UploadFile(CARD, card, len(card), hashlib.sha256(card).hexdigest())
    return Upload(repository, [card_file, *files])


def publish_model(
    folder: Path | str,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    license_name: str | None = None,
    languages: Sequence[str] = (),
    base_model: str | None = None,
) -> str:
    """Checks the model in `folder` and uploads it; see `plan_upload` and `send_upload`.

    Returns:
        The address of the model.
    """
    upload = plan_upload(
        folder,
        repository,
        license_name=license_name,
        languages=languages,
        base_model=base_model,
    )
    return send_upload(upload, private=private, revision=revision, message=message).url


def send_upload(
    upload: Upload,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> Published:
    """Makes the repository if need be, and uploads everything in one commit.

    Args:
        upload: what `plan_upload` gave.
        private: make the repository private; one that is public already is refused.
        revision: the branch, made if need be; default: main.
        message: of the commit.

    Raises:
        InputError: no token, no right to write there, no network, or whatever else the hub
            refuses; the hub takes the commit as a whole or not at all.
        MissingPackageError: huggingface_hub is not installed.
    """
    hub = import_library("huggingface_hub", "hub", "publishing")
    token = hub.get_token()
    if token is None:
        raise InputError(f"the hub wants to know who publishes {upload.repository}: {_LOGIN}")
    api = hub.HfApi(token=token, library_name="maskwright", library_version=version("maskwright"))
    name = upload.repository
    operations = [
        hub.CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=file.content)
        for file in upload.files
    ]
    try:
        with quiet():
            api.create_repo(name, private=private or None, exist_ok=True)
            if private and not api.model_info(name).private:
                raise InputError(f"{name} exists on the hub and is public; leave out --private")
            if revision is not None:
                api.create_branch(name, branch=revision, exist_ok=True)
            removed = _list_older(api.list_repo_files(name, revision=revision), upload)
            operations += [hub.CommitOperationDelete(path_in_repo=older) for older in removed]
            api.create_commit(
                name,
                operations,
                commit_message=message or f"Upload a model of maskwright {version('maskwright')}",
                revision=revision,
            )
    except InputError:
        raise
    except Exception as error:  # of several libraries, and in each release of others
        raise InputError(f"{name} is not published: {_explain(error, name)}") from None
    url = f"{api.endpoint}/{name}" + (f"/tree/{revision}" if revision else "")
    return Published(url, removed)


def _list_older(there: Sequence[str], upload: Upload) -> list[str]:
    """Files of an older model, which libraries would read beside or instead of the new ones."""
    new = {file.name for file in upload.files}
    return sorted(name for name in there if _OF_A_MODEL.fullmatch(name) and name not in new)


def _check_name(flag: str, value: str, pattern: re.Pattern[str], form: str) -> None:
    if not pattern.fullmatch(value):
        raise InputError(f"{flag} = {value} must be {form}")


def _write_card(folder: Path, metadata: Mapping[str, Any]) -> bytes:
    """The model's card with the metadata that the hub wants; what the card says already stays."""
    config = open_model(folder).model.config
    family, reason = native_family(config)
    card = read_card(folder) or write_card(None, config, family or OWN, reason)
    try:
        said, _ = split_card(card)
        known = {**describe_for_hub(family is not None), **said}
        return change_card(card, {**known, **metadata}).encode()
    except ValueError as error:
        raise ModelFolderError(f"{folder / CARD} cannot be published: {error}.") from None


def _list_weights(folder: Path) -> list[str]:
    """The files of the weights; `open_model` has read them."""
    if (folder / WEIGHTS).is_file():
        return [WEIGHTS]
    parts = set(read_json(folder / INDEX, MAX_INDEX_BYTES)["weight_map"].values())
    return [INDEX, *sorted(parts)]


def _explain(error: Exception, repository: str) -> str:
    """What went wrong, and what helps."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    owner = repository.partition("/")[0]
    if status == 401:
        return f"the hub does not accept the token; {_LOGIN}"
    if status == 403:
        return f"the token may not write to what belongs to {owner}; use one that may"
    if status == 404:
        return f"the hub knows no {repository}, or not by this token; {_LOGIN}"
    said = getattr(error, "server_message", None) or str(error)
    return " ".join(said.split()) or type(error).__name__
