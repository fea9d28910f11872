"""Every file that is read back is valid or refused by name, whatever it holds.

RECORDMILL_FUZZ_EXAMPLES says how many inputs are tried of each kind.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from example_counts import FUZZ
from job_tools import IRIS, convert
from mutations import damaged, try_all, with_odd_value

from recordmill.schemas.dataset_text import (
    parse_class_names,
    parse_reject,
    parse_run_metadata,
)
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.job_file import load_job
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.schema_file import load_schema
from recordmill.schemas.tfmd import load_pbtxt
from recordmill.schemas.yaml_lines import YamlDocument
from recordmill.transforms.commit.inputs import parse_inputs
from recordmill.transforms.commit.versions import follow_latest
from recordmill.transforms.sources.registry import InstalledFormats
from recordmill.transforms.storage import open_store
from recordmill.transforms.storage.lease import Holder
from recordmill.transforms.storage.store import parse_json
from recordmill.transforms.tasks.launches import Launch

JOB = b"""\
source: csv
inputs: [data/a.csv, data/b.csv]
output: out
name: users
splits: {train: 0.8, test: 0.2}
shards: 3
max_rejects: 1%
schema: schema.yaml
storage: {input: {region: x}}
params: {day: '2026-11-22'}
"""
SCHEMA = b"""\
features:
  id: {dtype: int64, min: 0, max: 9}
  image: {column: path, bytes_from: path, picture: {format: jpeg, height: 32}}
  tags: {dtype: string, shape: [null], separator: ';'}
  label: {classes: [cat, dog]}
  when: {dtype: int64, unit: s, default: '2026-01-01'}
"""
REJECT = json.dumps(
    {
        "uri": "a/b.csv",
        "position": 17,
        "reason": "'x' is not a valid int8",
        "raw": base64.b64encode(b"x,\xff\n").decode(),
    }
).encode()
CONTENT = b"""\
{"recordmill":1,"fingerprint":"00ff","job":{"source":"csv"},"by":"content","run":"0f"}
["a.csv",9,"crc32c:e3069283"]
["b/README",99,"crc32c:e3069283/64"]
["b/1.png",99,"","side"]
["b/2.png",0,"","unreadable"]
"""
SIGN = b"""\
{"run_key": "00ff", "host": "vm", "launched": 1.5e9, "renewed": 1500000001, "nonce": "0f",
 "ended": ""}
"""
PBTXT = b"""\
feature { name: "id" type: INT presence { min_fraction: 1.0 } shape {} }
feature { name: "tag" type: BYTES value_count { min: 1 max: 3 } }
feature { name: "x" type: FLOAT float_domain { min: 0.5 max: 2 } }
"""


@dataclass(frozen=True)
class KeptFile:
    """One kind of file.

    Attributes:
      sample: a valid one.
      read: reads one, given its bytes and its name, as the product does.
    """

    sample: bytes
    read: Callable[[bytes, str], object]


def read_manifest(data: bytes, uri: str) -> object:
    manifest = Manifest.from_bytes(data, uri)
    assert Manifest.from_bytes(manifest.to_bytes(), uri) == manifest
    assert min(manifest.records, manifest.num_bytes) >= 0
    return schema_of(manifest, {})


def read_inventory(lines: bytes, uri: str) -> object:
    return parse_inputs(gzip.compress(lines, 0), uri)


def read_job(data: bytes, uri: str) -> object:
    return load_job(data, uri, {}, date(2026, 11, 22), lambda _: SCHEMA, FORMATS)


def read_holder(data: bytes, uri: str) -> object:
    holder = parse_json(data, Holder)
    return holder and (holder.is_on_this_machine(), holder.is_running())


def read_sign(data: bytes, uri: str) -> object:
    return Launch("job-0123456789ab", data, is_live=True).describe()


def read_latest(data: bytes, uri: str) -> object:
    store = open_store("memory://fuzz/versions")
    store.put_bytes(data, "latest.json")
    return follow_latest(store)


pytestmark = pytest.mark.fuzz
FORMATS = InstalledFormats()
# Of pydantic and of Python: nobody who wrote the file knows them.
FOREIGN_WORDS = re.compile(r"Input should|pydantic|validation error|Traceback|NoneType")


@cache
def kept_files() -> dict[str, KeptFile]:
    """Every kind of file that is read back, by name."""
    with TemporaryDirectory() as folder:
        convert("csv", IRIS, folder)
        manifest = Path(folder, "manifest.json").read_bytes()
        run = Path(folder, "run.json").read_bytes()
        inputs = gzip.decompress(Path(folder, "inputs.jsonl.gz").read_bytes())
    return {
        "manifest.json": KeptFile(manifest, read_manifest),
        "inputs": KeptFile(inputs, read_inventory),
        "inputs by content": KeptFile(CONTENT, read_inventory),
        "job.yaml": KeptFile(JOB, read_job),
        "schema.yaml": KeptFile(SCHEMA, load_schema),
        "schema.pbtxt": KeptFile(PBTXT, load_pbtxt),
        "lock": KeptFile(Holder.this_process(60.0).to_bytes(), read_holder),
        "alive.json": KeptFile(SIGN, read_sign),
        "latest.json": KeptFile(b'{"version": "1.0.0", "path": "1.0.0"}', read_latest),
        "reject": KeptFile(REJECT, parse_reject),
        "run.json": KeptFile(run, parse_run_metadata),
        "labels": KeptFile(b'cat\n" dog"\n', parse_class_names),
    }


def changed(kind: str, sample: bytes, number: int) -> bytes:
    """Changes bytes, or in every second input a value."""
    if number % 2 == 0 or kind in ("schema.pbtxt", "labels"):
        return damaged(sample, number)
    if kind.startswith("inputs"):  # a JSON document in each line
        lines = sample.splitlines()
        line = number // 2 % len(lines)
        lines[line] = with_odd_value(lines[line], number)
        return b"".join(line + b"\n" for line in lines)
    if kind.endswith(".yaml"):  # JSON is YAML, too
        sample = json.dumps(YamlDocument(sample, kind).value).encode()
    return with_odd_value(sample, number)


@pytest.mark.parametrize("kind", sorted(kept_files()))
def test_is_read_or_refused_by_its_name(kind: str) -> None:
    file = kept_files()[kind]
    name = "memory://fuzz/versions/latest.json" if kind == "latest.json" else "a/b"
    assert file.read(file.sample, name)

    def attempt(number: int) -> bool:
        file.read(changed(kind, file.sample, number), name)
        return True

    refused = try_all(attempt, name, share=0, refused=(RecordmillError,))
    assert [error for error in refused if FOREIGN_WORDS.search(error)] == []
    # Else it was not the right file that was changed.
    assert kind in ("lock", "alive.json") or len(refused) > FUZZ // 20
