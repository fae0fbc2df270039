"""Errors as the backends themselves make them: which of them are asked about again."""

import errno

import pytest
from aiohttp import ClientPayloadError, ClientResponseError, RequestInfo
from botocore.exceptions import ClientError, ConnectionClosedError, NoCredentialsError
from gcsfs.retry import HttpError, validate_response
from google.auth.exceptions import DefaultCredentialsError, TransportError
from multidict import CIMultiDict, CIMultiDictProxy
from s3fs.errors import translate_boto_error
from yarl import URL

from maskwright.errors import ShardError
from maskwright.shards.remote import find_remedy


def s3(code: str, status: int) -> Exception:
    metadata = {"HTTPStatusCode": status}
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": metadata}
    return translate_boto_error(ClientError(answer, "GetObject"))


def http(status: int) -> Exception:
    headers = CIMultiDictProxy(CIMultiDict[str]())
    asked = RequestInfo(URL("http://host"), "GET", headers, URL("http://host"))
    return ClientResponseError(asked, (), status=status)


def gcs(status: int) -> Exception:
    try:
        validate_response(status, '{"error": {"message": "m"}}', "bucket/data")
    except Exception as error:
        return error
    raise AssertionError("it does not complain")


@pytest.mark.parametrize(
    "error",
    [
        s3("AccessDenied", 403),
        NoCredentialsError(),
        http(403),
        gcs(404),
        DefaultCredentialsError("none"),
        ImportError("Install adlfs"),
        PermissionError("m"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_would_be_the_same_again(error: Exception) -> None:
    assert find_remedy(error)


@pytest.mark.parametrize(
    "error",
    [
        s3("SlowDown", 503),
        s3("RequestTimeout", 400),
        ConnectionClosedError(endpoint_url="m"),
        http(429),
        http(502),
        ClientPayloadError("m"),
        HttpError({"code": 429, "message": "m"}),
        TransportError("m"),
        ConnectionResetError("m"),
        OSError(errno.EIO, "Forbidden: not by Google"),
        ValueError("m"),
        ShardError("it is damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass(error: Exception) -> None:
    assert find_remedy(error) is None
