"""Whether an error of a backend is final: asked again, it would say the same.

Backends are imported by fsspec, late and only if they are needed. So what they raise is known here
by the status of a server's answer, or by its name.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

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
    # google.auth, for Google's storage; gcsfs has tried the second one again and again
    "DefaultCredentialsError", "RefreshError",
    # huggingface_hub
    "LocalTokenNotFoundError", "HFValidationError", "OfflineModeIsEnabled",
))  # fmt: skip
_FORBIDDEN = "Forbidden: "  # all that gcsfs says of the status 403
# Request timeout, too early, too many requests.
_PASSING = (408, 425, 429)


def is_final(error: BaseException) -> bool:
    """Whether nothing can come of asking again."""
    if isinstance(error, _KINDS) or _NAMES.intersection(c.__name__ for c in type(error).__mro__):
        return True
    if isinstance(error, TimeoutError):  # of S3, with the status 400
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
    """The status of HTTP that an error keeps, if it does."""
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
