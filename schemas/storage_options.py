"""Parses storage options, which locate a store but never contain credentials.

    endpoint_url=http://127.0.0.1:9000         input and output
    output:account_name=prod                   one side only
    input:client_kwargs={"region_name":"x"}    JSON for a dict

The values are pickled for workers and can appear in files and logs. So this module
rejects secrets, by option name and by pattern. Credentials come from the environment or
workload identity.

Any other option can also hold an address (`map`, `schema`, a table of labels). So the
text of every option of any kind passes `addresses_with_secrets`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from recordmill.schemas.errors import UsageError

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Words in the name of an option with a secret: aws_secret_access_key, sasToken ...
_SECRET_WORDS = frozenset(
    {
        *("key", "keys", "apikey", "secret", "secrets", "token", "tokens", "sas"),
        *("password", "passwords", "passwd", "passphrase", "pass", "pwd"),
        *("credential", "credentials", "creds", "signature", "sig"),
        *("auth", "authorization", "bearer", "cookie", "cookies"),
    }
)
# Pattern of a file system's option name; a key in base64 has capital letters.
_PLAIN_NAME = r"[a-z][a-z0-9_]*"
_SECRET_NAMES = frozenset({"connection_string", "connectionstring", "conn_str"})
_HARMLESS_NAMES = frozenset({"key_filename", "key_file", "keyfile"})  # paths
# In gcsfs, the option token can also name the source of credentials.
_HARMLESS_TOKENS = frozenset({"anon", "cloud", "google_default"})

_SECRET_LOOK = re.compile(
    r"://[^/@\s]*:[^/@\s]*@"  # a password in a URL
    r"|\bAccountKey=|\bSharedAccessSignature=|[?&]sig="
    r"|-----BEGIN|\bBearer\s|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    re.IGNORECASE,
)

# A user and a password in an address, but not http://host:9000/a@b or "https://a: b@c".
_PASSWORD = re.compile(
    r"(:/+)(?!\[)[^/@\s:]*(?::|%3a)(?!\d{1,5}(?:[/?#,\s]|$)|\s)(?:[^\s@]{0,999}|[^/@\n]{0,999})@",
    re.IGNORECASE,
)
# A name and a value of a query; a colon or comma after it belongs to the sentence.
_QUERY = re.compile(r"([?&;#])([^\s?&;#=]+)=[^\s&;#]*[^\s&;#:,]")
_REDACTED = "***"

_CREDENTIALS_HINT = (
    "credentials come from the environment, a profile or workload identity, never "
    "from options (docs/storage.md)"
)
SECRET_REFUSED = (
    "looks like a secret, but options are sent to workers and may be logged: "
    f"{_CREDENTIALS_HINT}"
)


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options for the constructor of a file system, without secrets."""

    json_values: tuple[
        tuple[str, str], ...
    ] = ()  # name and value as JSON, sorted by name

    def __post_init__(self) -> None:
        for name, json_text in self.json_values:
            _refuse_secrets(name, json.loads(json_text))

    @classmethod
    def from_values(cls, options: Mapping[str, Any]) -> StorageOptions:
        """Creates options from JSON values.

        Raises:
          UsageError: an option is a secret.
        """
        pairs = ((n, json.dumps(v, sort_keys=True)) for n, v in options.items())
        return cls(tuple(sorted(pairs)))

    def to_dict(self) -> dict[str, Any]:
        """Returns the options as new values, for the file system's constructor."""
        return {name: json.loads(json_text) for name, json_text in self.json_values}

    def __repr__(self) -> str:
        # Names only, so that an undetected secret is not shown.
        return f"StorageOptions({', '.join(name for name, _ in self.json_values)})"


NO_OPTIONS = StorageOptions()


@dataclass(frozen=True, slots=True)
class StorageOptionsPair:
    """The options of the inputs and of the output."""

    input: StorageOptions = NO_OPTIONS
    output: StorageOptions = NO_OPTIONS


def parse_storage_options(option_texts: Sequence[str]) -> StorageOptionsPair:
    """Parses the options of each side from texts like `output:key=value`.

    Messages do not show the text: without a name before "=", all of it can be a secret,
    because a key in base64 ends with "=".

    A later option replaces an earlier option of the same name. An option for one side
    replaces an option for both. Values are JSON (`anon=true`, `"007"`), otherwise text.
    """
    sides: dict[str, dict[str, Any]] = {"": {}, "input": {}, "output": {}}
    for text in option_texts:
        left, equals, right = text.partition("=")
        side, colon, name = left.rpartition(":")
        is_known_side = side in ("input", "output") if colon else True
        is_padding = not right.strip("=") and not re.fullmatch(_PLAIN_NAME, name)
        if not (equals and is_known_side and name.isidentifier()) or is_padding:
            raise UsageError(
                "`storage`: expected key=value, input:key=value or output:key=value, found "
                f"{'no name before the =' if equals else 'no ='}"
            )
        sides[side][name] = _parse_value(right)
    return StorageOptionsPair(
        StorageOptions.from_values(sides[""] | sides["input"]),
        StorageOptions.from_values(sides[""] | sides["output"]),
    )


def require_whole_scheme(name: str) -> None:
    """Rejects a URL with a single slash, which would be a local path.

    Raises:
      UsageError: a slash is missing.
    """
    if match := re.match(r"([a-z][a-z0-9+.-]+):/(?!/)", name):
        raise UsageError(
            f"{name}: has one slash after {match[1]}:, expected two, as in "
            f"{match[1]}://{name[match.end() :]}; a local folder of this name is ./{name}"
        )


def redact_secrets(text: str) -> str:
    """Replaces the passwords, keys and signatures of addresses in a text by ***.

    >>> redact_secrets("http://me:hunter2@h/f.py:f"), redact_secrets("s3://b/x?sig=a&v=1")
    ('http://***@h/f.py:f', 's3://b/x?sig=***&v=1')
    >>> redact_secrets("http://h:9000/a@b?part=1, or a user: me@example.org")
    'http://h:9000/a@b?part=1, or a user: me@example.org'
    """

    # Not by urlsplit, because brackets and question marks can belong to a glob.
    def hidden(pair: re.Match[str]) -> str:
        is_secret = names_secret(unquote(pair[2]))
        return f"{pair[1]}{pair[2]}={_REDACTED}" if is_secret else pair[0]

    scheme, mark, address = _PASSWORD.sub(rf"\1{_REDACTED}@", text).partition("://")
    return scheme + mark + (_QUERY.sub(hidden, address) if mark else address)


def require_url_without_secret(url: str, option: str = "") -> None:
    """Rejects an address with a password, a key or a signature.

    Args:
      url: The address.
      option: Name of the option that holds it, for the message.

    Raises:
      UsageError: the address has a secret, which the message does not show.
    """
    if redact_secrets(url) != url:
        location = f"`{option}`: " if option else ""
        raise UsageError(f"{location}{describe_secret(url)}")


def describe_secret(text: str) -> str:
    """Returns the message that rejects a text with a secret, without the secret."""
    return f"{redact_secrets(text)}: the URL contains a secret; remove it: {_CREDENTIALS_HINT}"


def addresses_with_secrets(
    options: Any, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yields (key path, message) for every text that holds an address with a secret.

    Args:
      options: Values of a job file: text, numbers, lists and mappings. Keys are checked
        like texts, and secrets in key paths are hidden.
      place: Key path of the options.
    """
    if isinstance(options, Mapping):
        for key, inner in options.items():
            below = (*place, redact_secrets(str(key)))
            if below[-1] != str(key):
                yield below, describe_secret(str(key))
            yield from addresses_with_secrets(inner, below)
    elif isinstance(options, list | tuple):
        for index, inner in enumerate(options):
            yield from addresses_with_secrets(inner, (*place, index))
    elif isinstance(options, str) and redact_secrets(options) != options:
        yield place, describe_secret(options)


def require_words_without_secrets(words: Iterable[str]) -> None:
    """Rejects a command line with a secret in an address, before it is parsed."""
    flag = ""
    for word in words:
        if redact_secrets(word) != word:
            raise UsageError(f"{flag}{describe_secret(word)}")
        flag = f"{word} " if word.startswith("-") else ""


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def require_beam_options_without_secrets(arguments: Iterable[str]) -> None:
    """Rejects a pipeline option of Beam that has a value and the name of a secret."""
    terminated_arguments = [*arguments, "-"]
    for argument, following in pairwise(terminated_arguments):
        name, equals, _ = argument.partition("=")
        has_value = equals or not following.startswith("-")
        if has_value and name.startswith("-") and names_secret(name):
            raise UsageError(f"{name} {SECRET_REFUSED}")


def names_secret(name: str) -> bool:
    """Returns whether an option of this name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "_".join(words)
    if any(plain == name or plain.endswith(f"_{name}") for name in _SECRET_NAMES):
        return True
    if plain in _HARMLESS_NAMES or "kms" in plain:  # the name of a KMS key is no secret
        return False
    return not _SECRET_WORDS.isdisjoint(words)


def _refuse_secrets(name: str, option_value: Any) -> None:
    for path, inner in _iterate_leaves(name, option_value):
        last = path.rpartition(".")[2]
        if last == "token" and inner in _HARMLESS_TOKENS:
            continue
        is_secret_name = any(map(names_secret, path.split(".")))
        if is_secret_name or (isinstance(inner, str) and _SECRET_LOOK.search(inner)):
            raise UsageError(f"{path} {SECRET_REFUSED}")


def _iterate_leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields every plain value inside a value, with its key path."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _iterate_leaves(f"{path}.{name}", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _iterate_leaves(path, inner)
    else:
        yield path, value
