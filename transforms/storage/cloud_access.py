"""How to get access to each kind of remote storage: package and credentials."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CloudAccess:
    """The requirements of one kind of remote storage."""

    extra: str  # recordmill's extra that installs its package, or ""
    container: str  # its word for a bucket
    credentials: str  # how to provide credentials, for messages


_OTHER = CloudAccess("", "folder", "see the documentation of its fsspec package")
_S3 = CloudAccess(
    "s3",
    "bucket",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a "
    "role (workload identity)",
)
_GCS = CloudAccess(
    "gcs",
    "bucket",
    "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
    "login`, or run with workload identity",
)
_AZURE = CloudAccess(
    "azure",
    "container",
    "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with "
    "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or run with a managed "
    "identity and `storage` account_name=NAME",
)
HUB = CloudAccess("hf", "repository", "set HF_TOKEN, or log in with `hf auth login`")

_BY_PROTOCOL = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "az": _AZURE,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "hf": HUB,
}


def access_of(url: str) -> CloudAccess:
    """Returns the requirements of the storage that a URL names."""
    return _BY_PROTOCOL.get(url.partition("://")[0], _OTHER)
