"""Download of remote prepared data: files are checked, and transient errors are retried.

The transport is fsspec (extra `remote`), so every scheme that it supports can be read: ``s3://``,
``gs://``, ``hf://``, ``https://`` and others. It finds credentials in their usual places. fsspec
imports its backends late, so errors are classified by HTTP status or by class name.
"""

import errno
import importlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from maskwright.console import tell
from maskwright.errors import ShardError
from maskwright.extras import how_to_install

_KINDS = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,
)
_NAMES = frozenset((
    # botocore, for S3
    "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ParamValidationError",
    "SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError",
    # google.auth, for Google Cloud Storage; gcsfs has already retried the second one
    "DefaultCredentialsError", "RefreshError",
    # huggingface_hub
    "LocalTokenNotFoundError", "HFValidationError", "OfflineModeIsEnabled",
))  # fmt: skip
_FORBIDDEN = "Forbidden: "  # gcsfs reports the status 403 only in this text
# Request timeout, too early, too many requests.
_PASSING = (408, 425, 429)


def is_permanent(error: BaseException) -> bool:
    """Return True if a retry cannot succeed."""
    if isinstance(error, _KINDS) or _NAMES.intersection(c.__name__ for c in type(error).__mro__):
        return True
    if isinstance(error, TimeoutError):  # S3 reports timeouts with the status 400
        return False
    status = next(filter(None, map(_find_status, _list_causes(error))), None)
    if status is not None:
        return 300 <= status < 500 and status not in _PASSING
    return type(error) is OSError and str(error).startswith(_FORBIDDEN)


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _find_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, or None."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        metadata = cast(Mapping[str, Any], response).get("ResponseMetadata", {})
        found = metadata.get("HTTPStatusCode")
    elif response is not None:  # requests, httpx
        found = getattr(response, "status_code", None)
    elif hasattr(error, "status"):  # aiohttp
        found = getattr(error, "status", None)
    else:  # gcsfs
        found = getattr(error, "code", None)
    return found if isinstance(found, int) else None


ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 1.0  # before the second attempt; doubled each time, 15 seconds in all
PATIENCE_SECONDS = 60.0  # a download with fewer new bytes in this time than
LEAST_BYTES = 64 << 10  # these is stopped and retried

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SIGNED_IN = re.compile(r"([^:/]+)://(?P<user>[^/?#]*)@|(https?)://[^?]*\?", re.IGNORECASE)
# In these schemes the part before @ is an Azure container, or a name on the hub with a revision.
_NO_USER = ("abfs", "abfss", "wasb", "wasbs", "hf")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_OURS = ("s3", "s3a", "gs", "gcs", "hf", "http", "https")  # the extra installs their packages
_CHECK = (
    "Check the URL and the credentials (AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN or "
    "~/.config/fsspec)."
)

Check = Callable[[Path], None]


def is_remote(name: str) -> bool:
    """Return True if `name` is a URL, not a path."""
    return _URL.match(name) is not None


class RemoteFolder:
    """The files below a URL.

    Attributes:
        url: the URL, without a slash at its end.
        num_retries: number of repeated requests.

    Raises:
        ShardError: the URL may contain a credential: a user, a token, a query.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.num_retries = 0
        _check_credentials(url)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """The fsspec file system, and the folder's name in it."""
        try:
            return importlib.import_module("fsspec").core.url_to_fs(self.url)
        except Exception as error:  # every backend has its own exceptions
            remedy = self._choose_remedy(error)
            reason = _describe(error).rstrip(".")
        raise ShardError(f"{self.url} cannot be reached: {reason}. {remedy}")

    def _choose_remedy(self, error: Exception) -> str:
        if not isinstance(error, ImportError):
            return _CHECK
        if error.name == "fsspec" or self.url.partition("://")[0].lower() in _OURS:
            return how_to_install("remote")
        return "The extra remote does not include this package."

    def fetch(self, name: str, path: Path, most_bytes: int, check: Check) -> None:
        """Download ``URL/NAME`` to `path`, which exists only once it is complete.

        Args:
            most_bytes: the download fails if the file is longer.
            check: raises a ShardError if a downloaded file is damaged.

        Raises:
            ShardError: the file is missing or forbidden, which is not retried; every attempt
                failed; or the local file cannot be written.
        """
        system, root = self._system
        get_file, complaint = partial(system.get_file, f"{root}/{name}"), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self.num_retries += 1
                tell(f"{self.url}/{name}: {complaint} (attempt {attempt} of {ATTEMPTS}; retrying)")
                time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            # A stopped download may continue in its thread, so each attempt has its own file.
            temporary = path.with_name(f".{path.name}.{attempt}.tmp")
            try:
                _fetch_once(get_file, temporary, most_bytes)
                check(temporary)
                temporary.replace(path)
                return
            except Exception as error:  # every backend has its own exceptions
                complaint = _describe(error).replace(str(temporary), "it")
                if isinstance(error, OSError) and _is_local(error, temporary):
                    reason = f"cannot be written to {path}: {error.strerror}."
                elif is_permanent(error):
                    reason = (
                        f"cannot be read: {complaint.rstrip('.')}. {self._choose_remedy(error)}"
                    )
                else:
                    continue
                raise ShardError(f"{self.url}/{name} {reason}") from None
            finally:
                with suppress(OSError):
                    temporary.unlink()
        raise ShardError(
            f"{self.url}/{name} could not be downloaded in {ATTEMPTS} attempts. The last error: "
            f"{complaint}"
        )


def _check_credentials(url: str) -> None:
    """Raise a ShardError if a URL contains a credential, because runs and logs store the URL."""
    found = _SIGNED_IN.match(url)
    if found is None:
        return
    scheme, user = found[1] or found[3], found["user"]
    if user is None:
        raise ShardError(
            f"{scheme}://… contains a query (?…), which a folder's URL cannot have, and which may "
            "be a credential. Remove it, and put credentials where fsspec looks for them."
        )
    if ":" in user or scheme.lower() not in _NO_USER:
        raise ShardError(
            f"{scheme}://… contains a user or password before @, and runs and logs store the URL. "
            "Remove it, and put credentials where fsspec looks for them (~/.config/fsspec)."
        )


def _is_local(error: OSError, path: Path) -> bool:
    """Return True if the error is about the local disk or the file being written."""
    return error.errno in _DISK_FULL or error.filename == str(path)


def _fetch_once(get_file: Callable[..., None], path: Path, most_bytes: int) -> None:
    """Download in a separate thread, because some backends never close a silent connection."""
    transfer = Transfer(most_bytes)

    def work() -> None:
        try:
            get_file(str(path), callback=transfer)
        except BaseException as error:
            transfer.error = error
        transfer.ended.set()

    threading.Thread(target=work, name=f"fetch {path.name}", daemon=True).start()
    before = 0
    while not transfer.ended.wait(PATIENCE_SECONDS):
        after = transfer.num_bytes + _size_of(path)
        if after - before < LEAST_BYTES:
            transfer.is_given_up = True
            raise TimeoutError(
                f"fewer than {LEAST_BYTES:,} bytes arrived in {PATIENCE_SECONDS:g} seconds"
            )
        before = after
    if transfer.error is not None:
        raise transfer.error


class Transfer:
    """The progress callback of fsspec for one download."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.num_bytes = 0
        self.is_given_up = False

    def set_size(self, size: int | None) -> None:
        """Do nothing: the manifest states the size."""

    def relative_update(self, inc: int = 1) -> None:
        self.absolute_update(self.num_bytes + inc)

    def absolute_update(self, value: int) -> None:
        self.num_bytes = value
        if self.is_given_up:
            raise TimeoutError("stopped")
        if value > self.most_bytes:
            raise ShardError(f"it has more than {self.most_bytes:,} bytes, its largest valid size.")


def _size_of(path: Path) -> int:
    """Return the size of a growing file, because some backends report no progress."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _describe(error: BaseException) -> str:
    """Return an error as one line, or only its class if its text may contain secrets."""
    text = " ".join(str(error).split())
    if isinstance(error, ShardError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
