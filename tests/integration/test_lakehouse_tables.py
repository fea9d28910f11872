"""Tables that deltalake and pyiceberg wrote are read as these read them."""

from __future__ import annotations

import json
import re
import shutil
import socketserver
import sys
import threading
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from job_tools import Ran, command, examples_of
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.typedef import Record
from store_servers import bucket_place, moto, s3_environment

from recordmill.schemas.errors import InputError
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.sources.lakehouse import select_current_files
from recordmill.transforms.sources.listing import list_inputs

ROWS = pa.table({"id": [1, 2, 3, 4], "x": [1.5, 2.5, 3.5, 4.5]})
PYICEBERG_FILES = "pyiceberg.io.fsspec.FsspecFileIO"
DAYS = ROWS.append_column("day", pa.array(["a", "a b%/ü", "b", None]))


def catalog_in(folder: Path | str, **settings: str) -> SqlCatalog:
    """Returns a catalog in memory of Iceberg tables in a folder, or below a URL."""
    warehouse = f"file://{folder}" if isinstance(folder, Path) else folder
    catalog = SqlCatalog(
        "any", uri="sqlite:///:memory:", warehouse=warehouse, **settings
    )
    catalog.create_namespace("of")
    return catalog


def rows_of(out: Path) -> list[tuple[int, float]]:
    found = [example.features.feature for example in examples_of(out)]
    return sorted((r["id"].int64_list.value[0], r["x"].float_list.value[0]) for r in found)  # fmt: skip


def expected(table: pa.Table) -> list[tuple[int, float]]:
    return sorted((row["id"], row["x"]) for row in table.to_pylist())


def delta(folder: Path) -> DeltaTable:
    """A table with deleted and rewritten rows in its folder."""
    write_deltalake(folder, DAYS, partition_by=["day"])
    write_deltalake(folder, DAYS.slice(0, 2), mode="append")
    DeltaTable(folder).delete("id = 2")
    return DeltaTable(folder)


def iceberg(folder: Path | str, **settings: str) -> Any:
    catalog = catalog_in(folder, **settings)
    table = catalog.create_table("of.rows", schema=ROWS.schema)
    table.append(ROWS)
    table.append(ROWS.slice(0, 2))
    table.delete("id = 2")
    return table


def convert(*arguments: Any) -> Ran:
    return command("convert", "parquet", *arguments)


def test_files_with_other_columns_are_left_out_as_the_error_says(
    tmp_path: Path,
) -> None:
    write_deltalake(tmp_path / "sales", ROWS)
    more = ROWS.append_column("y", ROWS["x"])
    write_deltalake(tmp_path / "sales", more, mode="append", schema_mode="merge")
    ran = convert(tmp_path / "sales", tmp_path / "out")
    (way_out,) = re.findall(r"use --exclude (\S+\.parquet)", ran.err)
    ran = convert(tmp_path / "sales", tmp_path / "out", "--exclude", way_out)
    assert ran.status == 0, ran.err
    assert "version 1, 1 file" in ran.err
    assert rows_of(tmp_path / "out") == expected(ROWS)  # of x, which both have


def test_iceberg_table_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by the options that all inputs have, and no settings of pyiceberg."""
    with moto(tmp_path) as address:
        for name, value in s3_environment(address).items():
            monkeypatch.setenv(name, value)
        place = bucket_place("s3", {"endpoint_url": address})
        warehouse = place.root.removesuffix("/some/out")
        settings = {"s3.endpoint": address, "py-io-impl": PYICEBERG_FILES}
        table = iceberg(warehouse, **settings)
        left = expected(table.scan().to_arrow())
        options = ("--storage-option", f"endpoint_url={address}")
        ran = convert(f"{warehouse}/of/rows", tmp_path / "out", *options)
    assert ran.status == 0, ran.err
    assert "of other versions left out" in ran.err
    assert rows_of(tmp_path / "out") == left


def test_delta_table_is_read_at_its_version(tmp_path: Path) -> None:
    table, out = delta(tmp_path / "sales"), tmp_path / "out"
    assert len(list((tmp_path / "sales").rglob("*.parquet"))) > len(table.file_uris())
    ran = convert(tmp_path / "sales", out)
    assert ran.status == 0, ran.err
    assert "version 2, 4 files; 2 files of other versions left out" in ran.err
    assert rows_of(out) == expected(table.to_pyarrow_table())
    # A version later, and rows that were only added: an append takes them.
    write_deltalake(tmp_path / "sales", DAYS.slice(2, 1), mode="append")
    ran = convert(tmp_path / "sales", out, "--append")
    assert ran.status == 0, ran.err
    assert rows_of(out) == expected(DeltaTable(tmp_path / "sales").to_pyarrow_table())
    DeltaTable(tmp_path / "sales").delete("id = 3")
    ran = convert(tmp_path / "sales", out, "--append")
    assert ran.status != 0
    assert "are missing" in ran.err


def test_checkpoint_in_place_of_the_first_versions(tmp_path: Path) -> None:
    table = delta(tmp_path / "sales")
    table.create_checkpoint()
    (tmp_path / "sales/_delta_log/00000000000000000000.json").unlink()
    ran = convert(tmp_path / "sales", tmp_path / "out")
    assert ran.status == 0, ran.err
    assert rows_of(tmp_path / "out") == expected(table.to_pyarrow_table())


def test_delta_table_with_missing_file_or_damaged_log(tmp_path: Path) -> None:
    table = delta(tmp_path / "sales")
    Path(table.file_uris()[0]).unlink()
    ran = convert(tmp_path / "sales", tmp_path / "out")
    assert ran.status != 0
    assert "1 file that cannot be found" in ran.err
    for log in (tmp_path / "sales/_delta_log").glob("*.json"):
        log.write_text("{")
    ran = convert(tmp_path / "sales", tmp_path / "out")
    assert ran.status != 0
    assert "cannot be read" in ran.err


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_features_that_a_list_of_files_cannot_stand_for(
    tmp_path: Path, feature: str
) -> None:
    """The log is changed by hand, as deltalake writes neither."""
    rows = delta(tmp_path / "sales").to_pyarrow_table()
    log = tmp_path / "sales/_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if feature == "deletionVectors":  # which the table may use, and does not
        ran = convert(tmp_path / "sales", tmp_path / "unmarked")
        assert ran.status == 0, ran.err
        assert rows_of(tmp_path / "unmarked") == expected(rows)
        log = tmp_path / "sales/_delta_log/00000000000000000001.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        added = next(line["add"] for line in lines if "add" in line)
        place = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"}
        added["deletionVector"] = {**place, "offset": 1, "sizeInBytes": 34, "cardinality": 1}  # fmt: skip
        log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ran = convert(tmp_path / "sales", tmp_path / "out")
    assert ran.status != 0
    assert f"uses {feature}" in ran.err
    # The way out: its rows in Parquet files.
    (tmp_path / "plain").mkdir()
    pa.parquet.write_table(rows, tmp_path / "plain" / "rows.parquet")
    assert convert(tmp_path / "plain", tmp_path / "out").status == 0
    assert rows_of(tmp_path / "out") == expected(rows)


def test_iceberg_table_is_read_at_its_snapshot(tmp_path: Path) -> None:
    table, out = iceberg(tmp_path / "warehouse"), tmp_path / "out"
    folder = table.location().removeprefix("file://")
    ran = convert(folder, out)
    assert ran.status == 0, ran.err
    assert "2 files of other versions left out" in ran.err
    assert rows_of(out) == expected(table.scan().to_arrow())
    shutil.rmtree(f"{folder}/data")
    ran = convert(folder, tmp_path / "again")
    assert ran.status != 0
    assert "2 files that cannot be found" in ran.err


def test_columns_of_partitioned_iceberg_tables_are_those_of_its_files(
    tmp_path: Path,
) -> None:
    folder, out = tmp_path / "warehouse", tmp_path / "out"
    catalog = catalog_in(folder)
    table = catalog.create_table("of.rows", schema=DAYS.schema)
    with table.update_spec() as update:
        update.add_identity("day")
    table.append(DAYS)
    table.delete("id = 2")
    ran = convert(folder / "of/rows", out)
    assert ran.status == 0, ran.err
    found = [example.features.feature for example in examples_of(out)]
    # A row without a day has no such feature, and any row may be the first.
    assert {name for row in found for name in row} == {"id", "x", "day"}
    days = {
        row["id"].int64_list.value[0]: [*row["day"].bytes_list.value] for row in found
    }
    rows = table.scan().to_arrow().to_pylist()
    assert days == {
        row["id"]: [row["day"].encode()] if row["day"] else [] for row in rows
    }
    # The same again, and more of it.
    assert "nothing to do" in convert(folder / "of/rows", out).err
    table.append(DAYS.slice(2, 1))
    ran = convert(folder / "of/rows", out, "--append")
    assert ran.status == 0, ran.err
    assert len([*examples_of(out)]) == 4


def test_columns_that_files_of_a_migrated_iceberg_table_lack_are_those_of_its_metadata(
    tmp_path: Path,
) -> None:
    """Hive's files have partitions in folders alone; later files have them, too."""
    folder, out = tmp_path / "warehouse", tmp_path / "out"
    catalog = catalog_in(folder)
    places = [
        (date(2026, 1, 2), "007", Decimal("1.50")),
        (None, "a b%/ü", Decimal("2.00")),
    ]
    typed = pa.schema(
        [
            *ROWS.schema,
            pa.field("day", pa.date32()),
            pa.field("shop", pa.string()),
            pa.field("price", pa.decimal128(6, 2)),
        ]
    )
    table = catalog.create_table("of.rows", schema=typed)
    with table.update_spec() as update:
        for name in ("day", "shop", "price"):
            update.add_identity(name)
    paths = []
    for number in range(2):
        # No name of a folder tells it.
        paths.append(folder / f"of/rows/data/kind=x/{number}.parquet")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS.slice(2 * number, 2), paths[-1])
    # As its add_files does, which finds no values where Hive has them.
    with table.transaction() as change:
        change.set_properties(
            {
                "schema.name-mapping.default": table.schema().name_mapping.model_dump_json()
            }
        )
        with change.update_snapshot().fast_append() as append:
            for path, values in zip(paths, places, strict=True):
                file = parquet_file_to_data_file(
                    table.io, change.table_metadata, f"file://{path}"
                )
                days = values[0] and (values[0] - date(1970, 1, 1)).days
                file[3] = Record(days, *values[1:])
                append.append_data_file(file)
    more = {"id": [5], "x": [5.5], "day": [date(2026, 1, 3)], "shop": ["7"]}
    table.append(pa.table(more | {"price": [Decimal("3.25")]}, typed))
    ran = convert(folder / "of/rows", out)
    assert ran.status == 0, ran.err
    found = [example.features.feature for example in examples_of(out)]
    rows = table.scan().to_arrow().to_pylist()
    assert {row["shop"] for row in rows} == {"007", "a b%/ü", "7"}
    days = {
        row["id"].int64_list.value[0]: [*row["day"].int64_list.value] for row in found
    }
    assert days == {
        row["id"]: [(row["day"] - date(1970, 1, 1)).days] if row["day"] else []
        for row in rows
    }
    for name, kind, told in (
        ("shop", "bytes_list", str.encode),
        ("price", "float_list", float),
    ):
        values = {
            row["id"].int64_list.value[0]: getattr(row[name], kind).value[0]
            for row in found
        }
        assert values == {row["id"]: told(row[name]) for row in rows}
    ran = command("schema", "infer", "parquet", folder / "of/rows")
    assert ran.status == 0, ran.err
    assert "shop:" in ran.out
    ran = convert(folder / "of/rows", tmp_path / "less", "--partitions", "none")
    assert ran.status != 0  # as the later file has them


def test_damaged_manifests_of_an_iceberg_table_do_not_end_the_process(
    tmp_path: Path,
) -> None:
    """A length of 1 GB at any place of one, where pyiceberg's decoder in C would read."""
    catalog = catalog_in(tmp_path)
    plain = {"write.avro.compression-codec": "null"}
    table = catalog.create_table("of.rows", schema=ROWS.schema, properties=plain)
    table.append(ROWS)
    folder, length = table.location().removeprefix("file://"), b"\xfe\xff\xff\xff\x07"
    outcomes = []
    for path in Path(folder).glob("metadata/*.avro"):
        whole = path.read_bytes()
        for at in range(whole.rindex(b"}") + 1, len(whole) - len(length), 3):
            path.write_bytes(whole[:at] + length + whole[at + len(length) :])
            _, files = list_inputs([folder])
            try:
                select_current_files(files, NO_OPTIONS)
                outcomes.append("read")
            except InputError as error:
                outcomes.append(str(error).partition(": ")[2][:47])
        path.write_bytes(whole)
    assert "the metadata of this Iceberg table cannot be re" in outcomes


def test_iceberg_table_with_renamed_columns_is_refused(tmp_path: Path) -> None:
    """Its files have the old names: with a and b renamed to each other, rows were wrong."""
    table = iceberg(tmp_path / "warehouse")
    with table.update_schema() as update:
        update.rename_column("x", "price")
    ran = convert(table.location().removeprefix("file://"), tmp_path / "out")
    assert ran.status != 0
    assert "renamed or removed (x)" in ran.err
    (tmp_path / "plain").mkdir()  # the way out
    pa.parquet.write_table(table.scan().to_arrow(), tmp_path / "plain" / "rows.parquet")
    ran = convert(tmp_path / "plain", tmp_path / "out")
    assert ran.status == 0, ran.err


def test_a_read_changes_no_attribute_of_pyiceberg(tmp_path: Path) -> None:
    """It works in a process whose program uses pyiceberg, too."""
    table = iceberg(tmp_path / "warehouse")
    folder = table.location().removeprefix("file://")
    _, files = list_inputs([folder])

    def attributes() -> dict[str, int]:
        return {
            f"{module}.{name}.{attribute}": id(value)
            for module, found in sys.modules.items()
            if module.partition(".")[0] == "pyiceberg"
            for name, holder in vars(found).items()
            for attribute, value in (("", holder), *_of_class(holder))
        }

    before = attributes()
    assert any(name.startswith("pyiceberg.avro.file.new_decoder") for name in before)
    select_current_files(files, NO_OPTIONS)
    after = attributes()  # and those of modules that it imports
    assert {name: after.get(name) for name in before} == before


def _of_class(holder: Any) -> list[tuple[str, Any]]:
    if not isinstance(holder, type) or not holder.__module__.startswith("pyiceberg"):
        return []
    return [pair for pair in vars(holder).items() if not pair[0].startswith("_")]


def test_a_copy_of_an_iceberg_table_is_read_by_its_own_metadata(tmp_path: Path) -> None:
    table = iceberg(tmp_path / "warehouse")
    folder = Path(table.location().removeprefix("file://"))
    shutil.copytree(folder, tmp_path / "copy")
    rows = expected(table.scan().to_arrow())
    shutil.rmtree(tmp_path / "warehouse")
    ran = convert(tmp_path / "copy", tmp_path / "out")
    assert ran.status == 0, ran.err
    assert rows_of(tmp_path / "out") == rows


@pytest.mark.parametrize("name", ["manifest-list", "properties"])
def test_iceberg_metadata_do_not_choose_what_is_read_elsewhere(
    tmp_path: Path, name: str
) -> None:
    """Not a file, a server, or a class of Python that reads files."""
    requests = list[str]()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            requests.append("asked")

    table = iceberg(tmp_path / "warehouse")
    folder = Path(table.location().removeprefix("file://"))
    newest = max(folder.glob("metadata/*.metadata.json"))
    metadata = json.loads(newest.read_bytes())
    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        if name == "properties":
            metadata["properties"] = {
                "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
                "s3.endpoint": url,
            }
        outside = folder.rename(tmp_path / "moved") / "metadata"
        for place in (f"{url}/", "s3://bucket/", f"file://{tmp_path}/", "../"):
            for snapshot in metadata["snapshots"]:
                old = snapshot["manifest-list"].rpartition("/")[2]
                snapshot["manifest-list"] = f"{place}{old}"
            if name == "manifest-list" or place != "../":
                (outside / newest.name).write_text(json.dumps(metadata))
                ran = convert(tmp_path / "moved", tmp_path / "out")
                assert ran.status == 65
                assert "which is not a file in its folder; expected all" in ran.err
        server.shutdown()
    assert requests == []
