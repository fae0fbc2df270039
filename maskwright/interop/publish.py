"""Upload of a model folder to the Hugging Face hub, after a check, in one commit.

Only the files of the model are uploaded, even if the folder has others, and the model card gets the
hub's metadata. The same commit removes weights and tokenizer files of an older model, which
libraries would read too. `HfApi.upload_folder` uploads in several commits if `hf_xet` is installed,
and the card as it is on disk, without the name of the repository.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from maskwright.config import read_yaml
from maskwright.console import tell
from maskwright.errors import InputError, ModelFolderError
from maskwright.files import JsonObject, hash_file
from maskwright.finetuning.beside import describe_beside
from maskwright.interop.targets import import_library, quiet
from maskwright.model_folder.classifier_folder import is_classifier, open_classifier
from maskwright.model_folder.families import native_classifier, native_family
from maskwright.model_folder.folder import CARD, CONFIG, check_inside, open_model, read_card
from maskwright.model_folder.model_card import (
    PLACEHOLDER,
    change_card,
    split_card,
    write_card,
    write_classifier_card,
)
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.sentence_modules import FILES as SENTENCE_FILES
from maskwright.model_folder.sentence_modules import POOLING_FOLDER
from maskwright.model_folder.weights import INDEX, WEIGHTS, list_files
from maskwright.runs.find_model import PREFIX, find_model_folder, is_hub_name
from maskwright.runs.run_directory import CONFIG_NAME

_FILES = (
    *(CONFIG, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *SENTENCE_FILES,
)
# Files that libraries read from a model folder; those that are not uploaded are an older model's.
_MODEL_FILE = re.compile(
    r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)|(tf_model\.h5|flax_model\.msgpack)"
    r"|(model\.safetensors|pytorch_model\.bin|tf_model\.h5|flax_model\.msgpack)\.index\.json"
    r"|tokenizer\.json|tokenizer\.model|spiece\.model|sentencepiece\.bpe\.model|vocab\.(txt|json)"
    r"|merges\.txt|(special_tokens_map|added_tokens|tokenizer_config)\.json"
    r"|modules\.json|config_sentence_transformers\.json|sentence_.*_config\.json"
)
_NAME = r"[A-Za-z0-9][\w.-]*"
_LOGIN = "log in with: hf auth login, or set HF_TOKEN to a token with write access"


@dataclass(frozen=True)
class PublishResult:
    """The files that were uploaded, or would be with `dry_run`.

    Attributes:
        files: path of each file except the card.
        card: the model card as on the hub.
        url: the URL of the model; None if nothing was uploaded.
        removed: files of an older model that the commit removed.
    """

    repo: str
    files: tuple[Path, ...]
    card: str
    url: str | None = None
    removed: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return a line for each file, with bytes and sha256."""
        card = self.card.encode()
        entries = [(CARD, len(card), hashlib.sha256(card).hexdigest())]
        entries += [(_name_file(path), path.stat().st_size, hash_file(path)) for path in self.files]
        return [f"{name:<24} {size:>14,}  {digest}" for name, size, digest in entries]


def publish(
    folder: Path | str,
    repo: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    license: str | None = None,
    language: str | Sequence[str] = (),
    base_model: str | None = None,
    dry_run: bool = False,
    report: Callable[[str], None] = tell,
) -> PublishResult:
    """Check a model, list what would be uploaded, and upload it to the Hugging Face hub::

        publish("runs/mine", "me/my-encoder", private=True, license="apache-2.0", language="en")

    Args:
        folder: a run directory or a model folder.
        repo: OWNER/NAME of the repository, which is created if it does not exist.
        private: make the repository private; raise if it exists and is public.
        revision: the branch, which is created if it does not exist. Default: main.
        message: the commit message.
        license: the license in the model card, such as ``apache-2.0``.
        language: the language in the model card, such as ``en`` or ``en,ko``.
        base_model: the model on the hub that it began with. Default: that of a run.
        dry_run: upload nothing; needs no network.
        report: called with the lines about the files before the upload.

    Raises:
        InputError: an invalid name, a public repository with `private`, no token, no network, or
            another error of the hub. Then nothing was uploaded.
        MissingPackageError: huggingface_hub is not installed.
        ModelFolderError: `folder` is not a model folder, its card is damaged, or a file of it is a
            link to outside.
    """
    if is_hub_name(str(folder)):
        raise InputError(f"{folder} is already on the hub. Name a local folder.")
    if not re.fullmatch(f"{_NAME}/{_NAME}", repo):
        raise InputError(f"--repo = {repo} must be OWNER/NAME")
    codes = filter(None, language.split(",")) if isinstance(language, str) else language
    base_model = base_model or find_base_model(Path(folder))
    metadata = {"license": license, "language": list(codes), "base_model": base_model}
    model = find_model_folder(folder)
    card = _write_card(model, {name: value for name, value in metadata.items() if value})
    weights = list_files(model)
    index = [model / INDEX] if weights != [model / WEIGHTS] else []
    paths = [*(model / name for name in _FILES), *index, *weights]
    for path in paths:
        check_inside(model, path)
    files = tuple(path for path in paths if path.is_file())
    result = PublishResult(repo, files, card.replace(PLACEHOLDER, repo))
    lines = result.describe()
    lines += describe_beside(model)
    if _read_config(Path(folder)).get("private"):
        lines += ["the run is private, and tokenizer.json lists words of its text: check it first"]
    for line in lines:
        report(line)
    return result if dry_run else _upload(result, private, revision, message)


def _name_file(path: Path) -> str:
    """Return the path of a file in the repository."""
    return f"{POOLING_FOLDER}/{path.name}" if path.parent.name == POOLING_FOLDER else path.name


def find_base_model(run: Path) -> str | None:
    """Return the model on the hub that a run was initialized from, or None."""
    source = _read_config(run).get("init_from")
    if not isinstance(source, str) or not is_hub_name(source):
        return None
    return source.removeprefix(PREFIX).partition("@")[0]


def _read_config(run: Path) -> JsonObject:
    path = run / CONFIG_NAME
    return read_yaml(path) if path.is_file() else {}


def _write_card(folder: Path, metadata: dict[str, str | list[str] | None]) -> str:
    """Return the model's card and the hub's metadata; `metadata` overrides existing values."""
    if is_classifier(folder):
        loaded = open_classifier(folder)
        config, head = loaded.model.config, loaded.model.head_config
        (kind, _), reason = native_classifier(config, head.level, head.pooling)
        written = write_classifier_card(None, config, head.level, loaded.labels, kind, reason)
    else:
        config = open_model(folder).model.config
        family, reason = native_family(config)
        written = write_card(None, config, family or OWN, reason)
    card = read_card(folder) or written
    try:
        return change_card(card, {**split_card(written)[0], **split_card(card)[0], **metadata})
    except ValueError as error:
        raise ModelFolderError(f"{folder / CARD} cannot be published: {error}.") from None


def _upload(
    result: PublishResult, private: bool, revision: str | None, message: str | None
) -> PublishResult:
    """Create the repository and the branch if needed, and upload everything in one commit."""
    hub = import_library("huggingface_hub", "hub", "publishing")
    repo, token, ours = result.repo, hub.get_token(), version("maskwright")
    if token is None:
        raise InputError(f"no hub token to publish {repo}: {_LOGIN}.")
    api = hub.HfApi(token=token, library_name="maskwright", library_version=ours)
    contents = {CARD: result.card.encode(), **{_name_file(path): path for path in result.files}}
    try:
        with quiet():
            api.create_repo(repo, private=private or None, exist_ok=True)
            if private and not api.model_info(repo).private:
                raise InputError(
                    f"--private: {repo} exists on the hub and is public. Remove --private, or "
                    "choose another --repo."
                )
            if revision is not None:
                api.create_branch(repo, branch=revision, exist_ok=True)
            stored = api.list_repo_files(repo, revision=revision)
            older = sorted(n for n in stored if _MODEL_FILE.fullmatch(n) and n not in contents)
            operations = [
                *(hub.CommitOperationAdd(name, content) for name, content in contents.items()),
                *(hub.CommitOperationDelete(name) for name in older),
            ]
            message = message or f"Upload a model of maskwright {ours}"
            api.create_commit(repo, operations, commit_message=message, revision=revision)
    except InputError:
        raise
    except Exception as error:  # libraries raise many classes, which vary between releases
        raise InputError(f"{repo} is not published: {_explain(error, repo)}") from None
    url = f"{api.endpoint}/{repo}" + (f"/tree/{revision}" if revision else "")
    return replace(result, url=url, removed=tuple(older))


def _explain(error: Exception, repo: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    said = getattr(error, "server_message", None) or str(error)
    reasons: dict[object, str] = {
        401: f"the hub rejects the token; {_LOGIN}",
        403: f"the token has no write access to {repo.partition('/')[0]}; use one that has",
        404: f"the hub has no {repo}, or the token has no access to it; {_LOGIN}",
    }
    return reasons.get(status) or " ".join(said.split()) or type(error).__name__
