"""Options of storage: how they are written, and that no secret gets in."""

from __future__ import annotations

import pickle

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    parse_storage_options,
    redact_secrets,
    require_beam_options_without_secrets,
    require_url_without_secret,
)
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import LocalStore, RemoteStore, open_store

SECRET = "wJalrXUtnFEMIplantedK7MDENG"


@pytest.mark.parametrize(
    ("given", "for_input", "for_output"),
    [
        ([], {}, {}),
        (["anon=true"], {"anon": True}, {"anon": True}),
        (["input:anon=true"], {"anon": True}, {}),
        (["output:endpoint_url=http://h:1/"], {}, {"endpoint_url": "http://h:1/"}),
        # One side before both, whatever their order; then the later one.
        (["input:a=1", "a=2", "a=3"], {"a": 1}, {"a": 3}),
        (["a=x=y"], {"a": "x=y"}, {"a": "x=y"}),
        (["a="], {"a": ""}, {"a": ""}),
        (['a="007"'], {"a": "007"}, {"a": "007"}),  # text, not a number
        (['output:x={"y": "http://h:1", "n": [1, 2]}'], {}, {"x": {"y": "http://h:1", "n": [1, 2]}}),
    ],
)  # fmt: skip
def test_options_by_side(
    given: list[str], for_input: dict[str, object], for_output: dict[str, object]
) -> None:
    sides = parse_storage_options(given)
    assert sides.input.to_dict() == for_input
    assert sides.output.to_dict() == for_output


@pytest.mark.parametrize(
    "given", ["anon", "=x", "both:a=1", "a b=1", "a:b:c=1", ":a=1"]
)
def test_what_is_no_option(given: str) -> None:
    with pytest.raises(UsageError, match="expected key=value, input:key=value or"):
        parse_storage_options([given + SECRET])
    with pytest.raises(UsageError) as error:
        parse_storage_options([given, f"nonsense{'' if '=' in given else '='}"])
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        *("key", "secret", "token", "password", "account_key", "sas_token"),
        *("connection_string", "credential", "client_secret", "aws_access_key_id"),
        *("aws_secret_access_key", "aws_session_token", "secretAccessKey", "sasToken"),
        *("SSECustomerKey", "api_key", "passphrase", "Authorization", "accountKey"),
    ],
)
def test_secrets_are_refused(name: str) -> None:
    inner = f'{{"{name}": "{SECRET}"}}'
    plain = [f"{side}{name}={SECRET}" for side in ("", "input:", "output:")]
    for given in (*plain, f"client_kwargs={inner}", f'a={{"b": [1, {inner}]}}'):
        with pytest.raises(UsageError) as error:
            parse_storage_options([given])
        assert SECRET not in str(error.value)
        assert name in str(error.value)
        assert "credentials come from the environment" in str(error.value)


LOOKS = [
    f"https://user:{SECRET}@host/",
    f"DefaultEndpointsProtocol=https;AccountKey={SECRET}",
    f"https://a.blob.core.windows.net/c?sv=1&sig={SECRET}",
    f"-----BEGIN PRIVATE KEY-----{SECRET}",
    f"Bearer {SECRET}",
    f'{{"x": ["http://u:{SECRET}@h"]}}',
    "AKIAABCDEFGHIJKLMNOP",
]


@pytest.mark.parametrize("value", LOOKS)
def test_what_looks_like_a_secret_is_refused(value: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_storage_options([f"harmless={value}"])
    assert SECRET not in str(error.value)
    assert value not in str(error.value)


HARMLESS = [
    *("anon=true", "token=anon", "token=google_default", "token=cloud", "profile=prod"),
    *("account_name=prod", "client_id=x", "tenant_id=y", "project=p"),
    *("requester_pays=true", "key_filename=/home/me/.ssh/id"),
    's3_additional_kwargs={"SSEKMSKeyId": "arn:aws:kms:x:1:key/2"}',
    *("endpoint_url=http://127.0.0.1:9000", "default_block_size=5000000"),
]


@pytest.mark.parametrize("option", HARMLESS)
def test_what_is_no_secret_is_taken(option: str) -> None:
    assert parse_storage_options([option]).input != NO_OPTIONS


def test_options_made_in_code_are_looked_at_too() -> None:
    with pytest.raises(UsageError, match="looks like a secret"):
        StorageOptions.from_values({"secret": SECRET})
    with pytest.raises(UsageError, match="looks like a secret"):
        StorageOptions((("secret", f'"{SECRET}"'),))


def test_values_are_not_shown() -> None:
    options = StorageOptions.from_values(
        {"endpoint_url": "http://inside", "odd": SECRET}
    )
    assert repr(options) == "StorageOptions(endpoint_url, odd)"
    assert SECRET not in repr(RemoteStore("s3://b/o", options))
    assert pickle.loads(pickle.dumps(options)) == options
    assert len({options, StorageOptions.from_values(options.to_dict())}) == 1


URLS = [
    f"s3://key:{SECRET}@bucket/out",
    f"https://a.blob.core.windows.net/c/x.csv?sv=2020&sig={SECRET}",
    f"https://b.s3.amazonaws.com/x?X-Amz-Signature={SECRET}",
    f"https://h/x?access_token={SECRET}",
]


@pytest.mark.parametrize("url", URLS)
def test_urls_with_secrets_are_refused(url: str) -> None:
    for refuse in (
        require_url_without_secret,
        open_store,
        lambda url: list_inputs([url]),
    ):
        with pytest.raises(UsageError, match="contains a secret; remove it") as error:
            refuse(url)
        assert SECRET not in str(error.value)
        # Messages are hidden once more where they are shown.
        assert redact_secrets(str(error.value)) == str(error.value)


def test_switches_hold_no_secret() -> None:
    require_beam_options_without_secrets(["--no_auth", "--runner=DataflowRunner"])
    require_beam_options_without_secrets(["--runner=DataflowRunner", "--no_auth"])
    for arguments in (["--auth=x"], ["--auth", "x", "--streaming"]):
        with pytest.raises(UsageError, match="--auth looks like a secret"):
            require_beam_options_without_secrets(arguments)


def test_which_store_a_root_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert open_store("a/b") == LocalStore("/a/b")
    assert open_store("file:///a/b") == LocalStore("/a/b")
    assert open_store("s3://b/o/") == RemoteStore("s3://b/o")
    assert open_store("abfss://c@account.dfs.core.windows.net/o").uri_of("x") == (
        "abfss://c@account.dfs.core.windows.net/o/x"
    )
    assert open_store("gs://b[/a?.csv").uri == "gs://b[/a?.csv"  # a pattern
