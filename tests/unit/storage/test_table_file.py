"""Tables that later steps read from files of a store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.transforms.storage.local import LocalStore
from recordmill.transforms.storage.table_file import put_table, read_table


def test_a_table_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    store, table = LocalStore(str(tmp_path)), pa.table({"path": ["a", "b", "c"]})
    with pytest.raises(MissingFileError, match=r"inputs\.arrow: is missing"):
        read_table(store, "inputs.arrow")
    put_table(store, "inputs.arrow", table, rows=2)
    assert read_table(store, "inputs.arrow").equals(table)
    file = tmp_path / "inputs.arrow"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(OutputError, match=r"inputs\.arrow: is damaged"):
        read_table(store, "inputs.arrow")
