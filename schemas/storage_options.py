"""Parses storage options: how to reach a store, never how to prove who asks.

    endpoint_url=http://127.0.0.1:9000         input and output
    output:account_name=prod                   one side only
    input:client_kwargs={"region_name":"x"}    JSON where a dict is due

The values are pickled to workers and may be written down, so secrets are refused here,
by name and by look; credentials come from the environment or workload identity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

from recordmill.schemas.errors import UsageError

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Words in an option's name that tell of a secret: aws_secret_access_key, sasToken ...
_SECRET_WORDS = frozenset(
    {
        *("key", "keys", "apikey", "secret", "secrets", "token", "tokens", "sas"),
        *("password", "passwords", "passwd", "passphrase", "pass", "pwd"),
        *("credential", "credentials", "creds", "signature", "sig"),
        *("auth", "authorization", "bearer", "cookie", "cookies"),
    }
)
_SECRET_NAMES = frozenset({"connection_string", "connectionstring", "conn_str"})
_HARMLESS_NAMES = frozenset({"key_filename", "key_file", "keyfile"})  # paths
# What gcsfs calls token may also say where to look for credentials.
_HARMLESS_TOKENS = frozenset({"anon", "cloud", "google_default"})

_SECRET_LOOK = re.compile(
    r"://[^/@\s]*:[^/@\s]*@"  # a password in a url
    r"|\bAccountKey=|\bSharedAccessSignature=|[?&]sig="
    r"|-----BEGIN|\bBearer\s|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    re.IGNORECASE,
)

_WAY_OUT = (
    "credentials come from the environment, a profile or workload identity, never "
    "from options (docs/storage.md)"
)
SECRET_REFUSED = (
    "looks like a secret, and options are sent to workers and may be written down: "
    f"{_WAY_OUT}"
)


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options of one side, for the file system's constructor; free of secrets."""

    items: tuple[tuple[str, str], ...] = ()  # name and value as JSON, sorted by name

    def __post_init__(self) -> None:
        for name, value in self.items:
            _refuse_secrets(name, json.loads(value))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StorageOptions:
        """Makes options of values that JSON can hold; refuses secrets."""
        pairs = ((n, json.dumps(v, sort_keys=True)) for n, v in values.items())
        return cls(tuple(sorted(pairs)))

    def to_dict(self) -> dict[str, Any]:
        """Returns new values, as the constructor takes them."""
        return {name: json.loads(value) for name, value in self.items}

    def __repr__(self) -> str:
        # Names only: a secret that looks like none must not show either.
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"


NO_OPTIONS = StorageOptions()


@dataclass(frozen=True, slots=True)
class BothSides:
    """The options of the inputs and of the output."""

    input: StorageOptions = NO_OPTIONS
    output: StorageOptions = NO_OPTIONS


def parse_storage_options(given: Sequence[str]) -> BothSides:
    """Parses the options of each side from texts like `output:key=value`.

    A later option replaces an earlier one of the same name, one for a side replaces one
    for both. Values are JSON (`anon=true`, `"007"`), or else text.
    """
    sides: dict[str, dict[str, Any]] = {"": {}, "input": {}, "output": {}}
    for text in given:
        left, equals, right = text.partition("=")
        side, colon, name = left.rpartition(":")
        known = side in ("input", "output") if colon else True
        if not (equals and known and name.isidentifier()):
            # The value may be a secret; what stands left of it is not.
            raise UsageError(
                f"`storage` {left}{equals}: expected key=value, "
                "input:key=value or output:key=value"
            )
        sides[side][name] = _value(right)
    return BothSides(
        StorageOptions.of(sides[""] | sides["input"]),
        StorageOptions.of(sides[""] | sides["output"]),
    )


def require_whole_scheme(name: str) -> None:
    """Refuses a url that lacks a slash, which would be a local path."""
    if found := re.match(r"([a-z][a-z0-9+.-]+):/(?!/)", name):
        raise UsageError(
            f"{name}: has one slash after {found[1]}:, expected two, as in "
            f"{found[1]}://{name[found.end() :]}; a local folder of this name is ./{name}"
        )


def require_secretless_url(url: str) -> None:
    """Refuses a url with a password, a key or a signature; the message shows none."""
    # Not urlsplit: brackets and question marks may be those of a pattern.
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    host, slash, path = place.partition("/")
    user, _, host = host.rpartition("@")
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    if ":" in user or any(map(names_secret, names)):
        raise UsageError(
            f"{scheme}://{host}{slash}{path}: the address carries a secret; leave it "
            f"out: {_WAY_OUT}"
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def require_secretless_arguments(arguments: Iterable[str]) -> None:
    """Refuses a pipeline option of Beam that has a value, and the name of a secret."""
    given = [*arguments, "-"]
    for argument, following in pairwise(given):
        name, equals, _ = argument.partition("=")
        has_value = equals or not following.startswith("-")
        if has_value and name.startswith("-") and names_secret(name):
            raise UsageError(f"{name} {SECRET_REFUSED}")


def names_secret(name: str) -> bool:
    """Returns whether an option of this name would hold a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "_".join(words)
    if any(plain == name or plain.endswith(f"_{name}") for name in _SECRET_NAMES):
        return True
    if plain in _HARMLESS_NAMES or "kms" in plain:  # a KMS key is named, not given
        return False
    return not _SECRET_WORDS.isdisjoint(words)


def _refuse_secrets(name: str, value: Any) -> None:
    for path, inner in _leaves(name, value):
        last = path.rpartition(".")[2]
        if last == "token" and inner in _HARMLESS_TOKENS:
            continue
        named = any(map(names_secret, path.split(".")))
        if named or (isinstance(inner, str) and _SECRET_LOOK.search(inner)):
            raise UsageError(f"{path} {SECRET_REFUSED}")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields every plain value inside, with the names that lead to it."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(path, inner)
    else:
        yield path, value
