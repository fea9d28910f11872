"""Describes how the options of two jobs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_SHARDING = {
    "num_shards": "shards",
    "shard_bytes": "shard_size",
    "num_readers": "readers",
}


def option_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields the options that differ, with both values.

    Args:
      before: fields of a kept job, as `fixed_fields` returns them.
      now: those of the job now.
    """
    old, new = _options_of(before), _options_of(now)
    for option in sorted({*old, *new}):
        if old.get(option) == new.get(option):
            continue
        if option == "declared":
            yield "the declared schema"
        elif option == "map":
            yield f"{_function(old.get(option))}, now {_function(new.get(option))}"
        elif option == "source":
            yield f"the input format {old.get(option)}, now {new.get(option)}"
        elif option == "sharding":  # of three options, each dataset has one
            yield f"{old.get(option)}, now {new.get(option)}"
        else:
            yield f"{_option(option, old)}, now {_option(option, new)}"


def _options_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a kept job, under the names that people give them."""
    options = dict(fields)
    options |= options.pop("source_options", {})
    for name, value in options.pop("sharding", {}).items():
        if value is not None:
            options["sharding"] = f"`{_SHARDING.get(name, name)}={value}`"
    splits = options.pop("splits", [])
    options["splits"] = ",".join(f"{s['name']}={s['fraction']}" for s in splits)
    return {name: value for name, value in options.items() if value is not None}


def _function(value: Mapping[str, str] | None) -> str:
    """Returns how a function is told apart from others, of the same name or not."""
    if value is None:
        return "no `map`"
    return f"the `map` function {value['function']} (checksum {value['checksum'][:8]})"


def _option(name: str, options: Mapping[str, Any]) -> str:
    if name not in options:
        return f"no `{name}`"
    value = options[name]
    text = value if isinstance(value, str) else json.dumps(value)
    if not text or any(c.isspace() or c == "`" or not c.isprintable() for c in text):
        return f"`{name}` {json.dumps(text)}"  # front ends could not spell it
    return f"`{name}={text}`"
