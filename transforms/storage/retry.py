"""Faults of storage: which pass by themselves, how long to try, what to tell.

The libraries of the clouds are extras, so their errors are known by name and by the
HTTP status they carry, not by class.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from recordmill.schemas.errors import OutputError
from recordmill.transforms.storage.clouds import cloud_of

_Result = TypeVar("_Result")

_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_PASSING_ERRNOS = frozenset(
    {
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
    }
)
# Class names by package; a class below one of these counts as well.
_PASSING_CLASSES = frozenset(
    {
        "aiohttp.ClientConnectionError",
        "aiohttp.ClientPayloadError",
        "azure.IncompleteReadError",
        "azure.ServiceRequestError",
        "azure.ServiceResponseError",
        "botocore.ConnectionClosedError",
        "botocore.ConnectionError",
        "botocore.HTTPClientError",
        "botocore.IncompleteReadError",
        "botocore.ResponseStreamingError",
        "aiobotocore.AioReadTimeoutError",
        "gcsfs.ChecksumError",
        "google.TransportError",
        "http.IncompleteRead",
        "requests.ChunkedEncodingError",
        "requests.ConnectionError",
        "requests.Timeout",
    }
)
_LASTING_CLASSES = frozenset(
    {
        "aiohttp.ClientConnectorCertificateError",
        "aiohttp.InvalidURL",
        "botocore.SSLError",
    }
)
# S3 error codes behind statuses that mean something lasting otherwise. NoSuchUpload:
# the answer to a completed multipart upload was lost, and the completion sent again.
_PASSING_CODES = frozenset(
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "NoSuchUpload",
        "OperationAborted",
        "RequestTimeout",
        "XAmzContentSHA256Mismatch",
    }
)
_CREDENTIAL_CLASSES = frozenset(
    {
        "azure.ClientAuthenticationError",
        "botocore.CredentialRetrievalError",
        "botocore.NoAuthTokenError",
        "botocore.NoCredentialsError",
        "botocore.PartialCredentialsError",
        "botocore.ProfileNotFound",
        "botocore.TokenRetrievalError",
        "google.GoogleAuthError",
    }
)
_REFUSED_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
)
_BUGS = (AssertionError, AttributeError, NameError, TypeError)

_SECRET_VARIABLE = re.compile(
    r"secret|token|passw|credential|account_key|access_key|sas|connection_string",
    re.IGNORECASE,
)
_SIGNED = re.compile(r"(?i)\b(sig|signature|X-Amz-[\w-]+|AccountKey|token)=[^&;\s'\"]+")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long faults are borne.

    Attributes:
      tries: at most.
      first_seconds: longest pause after the first try; doubled each time.
      longest_seconds: bound of a pause.
      limit_seconds: no try begins later than this after the first.
    """

    tries: int = 10
    first_seconds: float = 0.2
    longest_seconds: float = 15.0
    limit_seconds: float = 180.0


DEFAULT_RETRIES = RetryPolicy()
SHORT_RETRIES = RetryPolicy(tries=3, limit_seconds=10.0)


def with_retries(
    action: Callable[[], _Result], retry_policy: RetryPolicy = DEFAULT_RETRIES
) -> _Result:
    """The result of an action that is safe to repeat.

    Transient faults are borne with growing random pauses; the last one is raised as it
    is, with a note that says how often and how long it was tried.
    """
    began = time.monotonic()
    for tried in range(1, retry_policy.tries + 1):
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            bound = retry_policy.first_seconds * 2 ** (tried - 1)
            # Random, so that workers who met one fault do not come back together.
            pause = random.uniform(0.3, 1.0) * min(bound, retry_policy.longest_seconds)
            spent = time.monotonic() - began
            if (
                tried == retry_policy.tries
                or spent + pause > retry_policy.limit_seconds
            ):
                error.add_note(f"tried {tried} times in {spent:.0f} s")
                raise
            time.sleep(pause)
    raise AssertionError("a retry_policy has at least one try")


def is_transient(error: BaseException) -> bool:
    """Whether a fault may be gone at the next try."""
    for each in _chain(error):
        names = _class_names(each)
        if names & _LASTING_CLASSES:
            return False
        if isinstance(each, TimeoutError | ConnectionError) or names & _PASSING_CLASSES:
            return True
        if isinstance(each, OSError) and each.errno in _PASSING_ERRNOS:
            return True
        if _status(each) in _PASSING_STATUSES or _code(each) in _PASSING_CODES:
            return True
    return False


def output_error(error: Exception, uri: str, done: str) -> OutputError:
    """The error to raise instead: where, what happened, the way out.

    Args:
      error: what the file system or its library raised.
      uri: what was to be worked on.
      done: what was to be done with it: "written", "read" ...

    Raises:
      Exception: `error` itself, if it is a bug and no fault of storage.
    """
    if isinstance(error, OutputError):
        return error
    return OutputError(f"{uri}: cannot be {done}: {describe_failure(error, uri)}")


def describe_failure(error: Exception, uri: str) -> str:
    """What a fault was and the way out, in one line that shows no secret.

    Raises:
      Exception: `error` itself, if it is a bug and no fault of storage.
    """
    if isinstance(error, _BUGS):
        raise error
    what = _clean(" ".join(str(error).split()))[:500] or type(error).__name__
    for note in getattr(error, "__notes__", ()):
        what += f" ({note})"
    return f"{what}; {_way_out(error, uri)}"


def safe_cause(error: Exception) -> Exception | None:
    """What to raise an output_error error `from`: tracebacks are logged, so no secrets."""
    texts = [str(each) for each in _chain(error)]
    return error if all(_clean(text) == text for text in texts) else None


def _way_out(error: Exception, uri: str) -> str:
    cloud = cloud_of(uri)
    chain = list(_chain(error))
    names = set().union(*map(_class_names, chain))
    statuses = {_status(each) for each in chain}
    codes = {_code(each) for each in chain}
    numbers = {each.errno for each in chain if isinstance(each, OSError)}
    if isinstance(error, ImportError):
        package = f"recordmill[{cloud.extra}]" if cloud.extra else "its package"
        return f"pip install {package}"
    if "Protocol not known" in str(error):
        return "give a folder, s3://, gs://, az:// or what fsspec has a package for"
    if (
        names & _CREDENTIAL_CLASSES
        or 401 in statuses
        or codes & _REFUSED_CODES
        or "with credentials" in str(error)  # adlfs, a bare ValueError
    ):
        return f"no valid credentials: {cloud.credentials}"
    if (
        isinstance(error, PermissionError)
        or 403 in statuses
        or str(error).startswith("Forbidden")  # gcsfs, a bare OSError
    ):
        return "a permission is missing (docs/storage.md lists those needed)"
    if {errno.ENOSPC, errno.EDQUOT} & numbers:
        return "the disk is full or the quota used up: make space, then run it again"
    if errno.EROFS in numbers:
        return "the file system is read-only: choose another place"
    if isinstance(error, FileNotFoundError) or 404 in statuses:
        return f"does it exist? recordmill makes no {cloud.container}"
    if isinstance(error, NotImplementedError):
        return "this kind of storage cannot be written to"
    if is_transient(error):
        return "the network or the store is down or slow: run it again later"
    return "see docs/storage.md for what a store must allow"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _class_names(error: BaseException) -> set[str]:
    return {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(error).__mro__}


def _status(error: BaseException) -> int | None:
    """The HTTP status an error carries, wherever its library keeps it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    for name in ("status_code", "status", "code"):  # azure, aiohttp, gcsfs
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
        if isinstance(value, str) and value.isdecimal():
            return int(value)
    return None


def _code(error: BaseException) -> str | None:
    """The error code of S3 or Azure."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    code = getattr(error, "error_code", None)
    return str(code) if code else None


def _clean(text: str) -> str:
    """A message without the values of secret environment variables and signatures."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_VARIABLE.search(name):
            text = text.replace(value, "***")
    return _SIGNED.sub(r"\1=***", text)
