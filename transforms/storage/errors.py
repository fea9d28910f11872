"""Classifies storage errors as transient or permanent, and describes how to fix them.

The clouds' libraries are optional extras, so their errors are recognized by class name
and HTTP status, not by class.
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

from recordmill.schemas.errors import (
    FULL_ERRNOS,
    NO_ROOM,
    InputError,
    NoRoomError,
    OutputError,
    OutputRefusedError,
    UnreachableInputError,
    UsageError,
    error_kind,
)
from recordmill.schemas.storage_options import redact_secrets
from recordmill.transforms.storage.cloud_access import access_of

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRNOS = frozenset(
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
# Permanent errors: a person has to grant a permission or choose another location.
_FORBIDDEN = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST}
)
# Class names by package; subclasses count as well.
_TRANSIENT_CLASSES = frozenset(
    {
        "aiohttp.ClientConnectionError",
        "aiohttp.ClientPayloadError",
        "azure.IncompleteReadError",
        "azure.ServiceRequestError",
        "azure.ServiceResponseError",
        "botocore.ConnectionClosedError",
        "botocore.ConnectionError",
        "botocore.FlexibleChecksumError",
        "botocore.HTTPClientError",
        "botocore.IncompleteReadError",
        "botocore.ResponseStreamingError",
        "aiobotocore.AioReadTimeoutError",
        "gcsfs.ChecksumError",
        "google.TransportError",
        "http.IncompleteRead",
        "httpx2.TransportError",  # of the Hugging Face Hub
        "requests.ChunkedEncodingError",
        "requests.ConnectionError",
        "requests.Timeout",
    }
)
_PERMANENT_CLASSES = frozenset(
    {
        "aiohttp.ClientConnectorCertificateError",
        "aiohttp.InvalidURL",
        "botocore.SSLError",
        "huggingface_hub.OfflineModeIsEnabled",
    }
)
# Transient S3 error codes whose HTTP status would mean a permanent error. NoSuchUpload:
# the response to a completed multipart upload was lost, and the completion was sent
# again.
_TRANSIENT_CODES = frozenset(
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
_CREDENTIAL_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
)
_CHECKSUM_CLASSES = frozenset({"botocore.FlexibleChecksumError", "gcsfs.ChecksumError"})
_BUGS = (AssertionError, AttributeError, NameError, TypeError)
_NO_PROTOCOL = "Protocol not known"  # of fsspec, a bare ValueError
# The message of a class of fsspec, or of a package below it, about an unknown option.
_UNKNOWN_OPTION = re.compile(r"__init__\(\) got an unexpected keyword argument '(.+)'")

_SECRET_VARIABLE = re.compile(
    r"secret|token|passw|credential|(account|access|api)_key|sas|connection_string",
    re.IGNORECASE,
)
_SIGNED = re.compile(r"(?i)\b(sig|signature|X-Amz-[\w-]+|AccountKey|token)=[^&;\s'\"]+")


def is_transient(error: BaseException) -> bool:
    """Returns whether a retry may succeed."""
    for chained_error in _error_and_causes(error):
        names = _class_names(chained_error)
        if names & _PERMANENT_CLASSES:
            return False
        if (
            isinstance(chained_error, TimeoutError | ConnectionError)
            or names & _TRANSIENT_CLASSES
        ):
            return True
        if (
            isinstance(chained_error, OSError)
            and chained_error.errno in _TRANSIENT_ERRNOS
        ):
            return True
        if (
            _status(chained_error) in _TRANSIENT_STATUSES
            or _code(chained_error) in _TRANSIENT_CODES
        ):
            return True
    return False


def is_unmet_condition(error: BaseException) -> bool:
    """Returns whether a put was refused because its condition did not hold."""
    return any(
        isinstance(chained_error, FileExistsError) or _status(chained_error) == 412
        for chained_error in _error_and_causes(error)
    )


def output_error(error: Exception, uri: str, done: str) -> OutputError:
    """Returns the output error to raise instead: location, problem and fix.

    `done` is the participle of the failed action: "written", "read" ...

    An error that is a bug, not a failure of the storage, is raised unchanged.
    """
    if isinstance(error, OutputError):
        return error
    message = f"{uri}: cannot be {done}: {describe_failure(error, uri)}"
    if error_kind(error) == NO_ROOM:
        return NoRoomError(message)
    errnos = {
        chained_error.errno
        for chained_error in _error_and_causes(error)
        if isinstance(chained_error, OSError)
    }
    is_unsupported = isinstance(error, ImportError | NotImplementedError)
    if is_unsupported or errnos & _FORBIDDEN or _NO_PROTOCOL in str(error):
        return OutputRefusedError(message)
    return OutputError(message)


def input_error(error: Exception, uri: str, done: str) -> InputError:
    """Returns the input error to raise instead: location, problem and fix.

    `done` is the participle of the failed action: "read", "listed" ...

    An error that is a bug, not a failure of the storage, is raised unchanged.
    """
    failure = describe_failure(error, uri, is_input=True)
    message = f"{uri}: cannot be {done}: {failure}"
    chain = list(_error_and_causes(error))
    errnos = {
        chained_error.errno
        for chained_error in chain
        if isinstance(chained_error, OSError)
    }
    permanent = FileNotFoundError | ImportError | ValueError
    is_permanent = any(isinstance(chained_error, permanent) for chained_error in chain)
    if is_permanent or errnos & _FORBIDDEN or 404 in map(_status, chain):
        return InputError(message)
    return UnreachableInputError(message)


def describe_failure(error: Exception, uri: str, *, is_input: bool = False) -> str:
    """Returns an error and its fix in one line that shows no secret; raises bugs.

    The fixes for an input differ: it is never written to, and it can be excluded.
    """
    if isinstance(error, TypeError) and (
        option_match := _UNKNOWN_OPTION.search(str(error))
    ):
        raise UsageError(
            f"{uri}: this kind of storage has no option {option_match[1]!r}: correct its name in "
            "`storage`, or remove it"
        ) from error
    if isinstance(error, _BUGS):
        raise error
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        if error.filename in (None, uri, uri.removeprefix("file://")):
            text = error.strerror  # the caller names the file
    text = hide_secrets(" ".join(text.split()))[:500] or type(error).__name__
    for note in getattr(error, "__notes__", ()):
        text += f" ({note})"
    way_out = is_input and _fix_for_input(error, uri)
    return f"{text}; {way_out or _fix_for_output(error, uri)}"


def safe_cause(error: Exception) -> Exception | None:
    """Returns the error as a cause to raise from, or None if it shows a secret."""
    texts = [str(chained_error) for chained_error in _error_and_causes(error)]
    return error if all(hide_secrets(text) == text for text in texts) else None


def _fix_for_input(error: Exception, uri: str) -> str:
    """Returns the fix that applies only to inputs; "" if the fix for outputs applies."""
    chain = list(_error_and_causes(error))
    errnos = {
        chained_error.errno
        for chained_error in chain
        if isinstance(chained_error, OSError)
    }
    statuses = {_status(chained_error) for chained_error in chain}
    if errno.EIO in errnos:
        return (
            "its disk, or the connection to it, fails: copy the file again from its "
            "source, or leave it out with `exclude`; the system's log (dmesg) names "
            "the device"
        )
    if errnos & {errno.EACCES, errno.EPERM}:
        return (
            "this user may not read it: allow it (`chmod a+r` for a file, `chmod a+rx` for "
            "each folder above it), or leave it out with `exclude`"
        )
    if 403 in statuses or str(error).startswith("Forbidden"):  # gcsfs, a bare OSError
        return (
            "a permission is missing: inputs require permission to list and to read "
            "(docs/storage.md)"
        )
    if isinstance(error, FileNotFoundError) and "://" not in uri:
        return "it does not exist: correct its name, or restore it"
    if errnos & {errno.ENAMETOOLONG, errno.ELOOP}:
        return "correct its name"
    if (
        errnos
        and not is_transient(error)
        and "://" not in uri
        and not FULL_ERRNOS & errnos
    ):
        return "copy it again from its source, or leave it out with `exclude`"
    return ""


def _fix_for_output(error: Exception, uri: str) -> str:
    cloud = access_of(uri)
    chain = list(_error_and_causes(error))
    names = set().union(*map(_class_names, chain))
    statuses = {_status(chained_error) for chained_error in chain}
    codes = {_code(chained_error) for chained_error in chain}
    errnos = {
        chained_error.errno
        for chained_error in chain
        if isinstance(chained_error, OSError)
    }
    if isinstance(error, ImportError):
        if not cloud.extra:
            return "install its package with pip"
        return f"pip install '.[{cloud.extra}]' in the folder of recordmill's source"
    if _NO_PROTOCOL in str(error):
        return "use a folder, s3://, gs://, az:// or another protocol of fsspec"
    if (
        names & _CREDENTIAL_CLASSES
        or 401 in statuses
        or codes & _CREDENTIAL_CODES
        or "with credentials" in str(error)  # adlfs, a bare ValueError
    ):
        return f"no valid credentials: {cloud.credentials}"
    if (
        isinstance(error, PermissionError)
        or 403 in statuses
        or str(error).startswith("Forbidden")  # gcsfs, a bare OSError
    ):
        return "a permission is missing (docs/storage.md lists the required ones)"
    if errno.EFBIG in errnos:
        return (
            "the size that the process (ulimit -f) or the file system allows for a file "
            "is reached: raise the limit, then run again"
        )
    if FULL_ERRNOS & errnos:
        return (
            "the disk is full or the quota is used up: free some space, then run again"
        )
    if errno.EROFS in errnos:
        return "the file system is read-only: choose another folder"
    if isinstance(error, FileNotFoundError) or 404 in statuses:
        return f"does it exist? recordmill does not create a {cloud.container}"
    if isinstance(error, NotImplementedError):
        return "this kind of storage cannot be written to"
    if names & _CHECKSUM_CLASSES:
        return (
            "the received bytes do not match the checksum in the store: run again; if "
            "it happens again, a proxy changes them, or the object is damaged"
        )
    if errno.EIO in errnos:
        return "the disk or its connection fails: check the system's log (dmesg)"
    if is_transient(error):
        return "the network or the store is down or slow: run again later"
    return "see docs/storage.md for what a store must allow"


def _error_and_causes(error: BaseException) -> Iterator[BaseException]:
    visited_ids: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited_ids:
        visited_ids.add(id(current))
        yield current
        current = current.__cause__


def _class_names(error: BaseException) -> set[str]:
    return {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(error).__mro__}


def _status(error: BaseException) -> int | None:
    """Returns the HTTP status of an error; each library keeps it in another attribute."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    for holder in (error, response):  # azure, aiohttp, gcsfs; the Hub
        for name in ("status_code", "status", "code"):
            value = str(getattr(holder, name, None))
            if value.isdecimal():
                return int(value)
    return None


def _code(error: BaseException) -> str | None:
    """Returns the error code of S3 or Azure."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    code = getattr(error, "error_code", None)
    return str(code) if code else None


def hide_secrets(text: str) -> str:
    """Replaces secret environment variables, passwords and signatures by ***."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_VARIABLE.search(name):
            text = text.replace(value, "***")
    return _SIGNED.sub(r"\1=***", redact_secrets(text))


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits on retries of transient errors: number of tries and pauses."""

    tries: int = 10  # at most
    first_seconds: float = 0.2  # longest pause after the first try; doubled each time
    longest_seconds: float = 15.0  # longest pause at all
    limit_seconds: float = 180.0  # latest start of a try, after the start of the first


DEFAULT_RETRIES = RetryPolicy()
SHORT_RETRIES = RetryPolicy(tries=3, limit_seconds=10.0)


def with_retries(
    action: Callable[[], _Result], retry_policy: RetryPolicy = DEFAULT_RETRIES
) -> _Result:
    """Calls a repeatable action until it succeeds, and returns its return value.

    Pauses between tries are random and grow. The last transient error is raised with a
    note about the number of tries and their duration.
    """
    began = time.monotonic()
    for tried in range(1, retry_policy.tries + 1):
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            bound = retry_policy.first_seconds * 2 ** (tried - 1)
            # Random, so that workers with the same error do not all retry at once.
            pause = random.uniform(0.3, 1.0) * min(bound, retry_policy.longest_seconds)
            spent = time.monotonic() - began
            if (
                tried == retry_policy.tries
                or spent + pause > retry_policy.limit_seconds
            ):
                error.add_note(f"tried {tried} times in {spent:.0f} s")
                raise
            time.sleep(pause)
    raise AssertionError("a retry policy has at least one try")
