"""Finds records of a fixed length, with a declared layout or as in STL-10 or CIFAR.

A declaration is `label:u8,image:u8[3,32,32]:chw->hwc`:

    NAME:TYPE              a scalar
    NAME:TYPE[2,3]         an array in row-major order
    NAME:TYPE[3,32,32]:chw->hwc   stored as planes, converted to rows of pixels
    NAME:bytes[10]         ten bytes, unchanged
    _:u8[4]                four bytes that are skipped

STL-10 consists of

    train_X.bin, test_X.bin      images: 3 planes, each column by column, 96 x 96
    train_y.bin, test_y.bin      labels 1 to 10, one byte each
    unlabeled_X.bin              images without labels, which get label -1 as in TFDS
    class_names.txt              names, one per line

CIFAR-10 and CIFAR-100 have images of 32 x 32 pixels, row-major:

    CIFAR-10   label | 1024 red | 1024 green | 1024 blue        3,073 bytes
    CIFAR-100  coarse label | fine label | the same 3,072       3,074 bytes

Sources: cs.stanford.edu/~acoates/stl10, "Binary files";
www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.arrays.array_parts import (
    MAX_ROW_BYTES,
    ArrayGroup,
    ArrayInput,
    Field,
    FindArrays,
    RowArray,
    create_record_group,
    parse_name_role,
    read_class_names,
    read_names,
    require_same_rows,
    split_names_files,
)
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.base import RangeFindings, Rows
from recordmill.transforms.sources.listing import unreadable_error
from recordmill.transforms.sources.registry import BinaryOptions, CifarOptions, Variant
from recordmill.transforms.storage.reading import read_range

TYPES = {
    "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4",
    "u64": "u8", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip
_FIELD = re.compile(
    r"(?P<name>[^:,\[\]]+):(?P<type>[a-z]+\d*)(?:\[(?P<shape>[\d,\s]*)\])?"
    r"(?::(?P<axes>[^,]*))?"
)
_MAX_DECLARATION_CHARACTERS = 10_000  # maximum number of characters of a declaration
_EXPECTED_FORM = (
    "expected NAME:TYPE, NAME:TYPE[SIZES] or NAME:TYPE[SIZES]:chw->hwc, in quotes, as in "
    "'label:u8,image:u8[3,32,32]:chw->hwc'"
)
_LAYOUT_SIZES = {
    "CIFAR-10 (convert cifar)": 3073,
    "CIFAR-100 (convert cifar)": 3074,
    "STL-10 (layout=stl10)": 3 * 96 * 96,
}
_SIGNATURES = (
    (b"\x93NUMPY", "a NumPy array (convert numpy)"),
    (b"PK\x03\x04", "a zip archive, as NumPy's .npz is (convert numpy)"),
    (b"MATLAB 5.0", "a MATLAB file: write its arrays with numpy.save (convert numpy)"),
    (b"\x89HDF", "an HDF5 file: write its arrays with numpy.save (convert numpy)"),
    (b"\x1f\x8b", "compressed with gzip: unpack it, or convert idx if it is IDX"),
    (b"BZh", "compressed with bz2: unpack it first"),
    (b"\xfd7zXZ", "compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
)
_IDX_TYPES = b"\x08\x09\x0b\x0c\x0d\x0e"

STL10_NAMES = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip
_STL10_SPLITS = ("train", "test")
_UNLABELED = "unlabeled_X.bin"
_STL10_FILES = {f"{split}_{kind}.bin" for split in _STL10_SPLITS for kind in "Xy"}
_IMAGE = Field("image", "|u1", (3, 96, 96), (2, 1, 0))
_LABEL = Field("label", "|u1", first_label=1)
_NO_LABEL = Field("label", "<i8", constant_value=-1)


def find_records(
    options: BinaryOptions, files: Sequence[InputFile], storage: StorageOptions
) -> ArrayInput:
    """Finds the records of a declared layout, or of STL-10."""
    if options.record and options.layout != "auto":
        raise InputError(
            f"`layout={options.layout}` and `record` cannot be combined: leave out one"
        )
    names = {PurePosixPath(f.path).name for f in files if f.path.endswith(".bin")}
    is_stl10 = bool(names) and names <= {*_STL10_FILES, _UNLABELED}
    if options.layout == "stl10" or (not options.record and is_stl10):
        return _find_stl10(files, storage)
    if not options.record:
        hint = next(filter(None, (_guess_layout(f, storage) for f in files)), "")
        raise InputError(
            "`record` is not given, and the files do not match a published "
            f"layout{f' ({hint})' if hint else ''}: declare the record, as in "
            "record='label:u8,image:u8[3,32,32]:chw->hwc'"
        )
    fields, size = parse_record(options.record, options.byte_order)
    files_of_classes, other_files = split_names_files(files, options.class_names)
    record_files = [file for file in other_files if _is_binary_file(file)]
    skipped = [
        file.path for file in other_files if record_files and not _is_binary_file(file)
    ]
    labels = [field.name for field in fields if field.is_integer]
    class_names, checksums = read_class_names(files_of_classes, labels, storage)
    return ArrayInput(
        tuple(
            _create_group(file, fields, size, options.header_bytes, storage)
            for file in record_files or other_files
        ),
        class_names,
        f"{size:,} bytes each",
        [("does not end in .bin", path) for path in skipped],
        checksums,
        f"expected a whole record of {size:,}: the file is cut short, or `record` "
        "or `header_bytes` is wrong",
    )


def _create_group(
    file: InputFile,
    fields: tuple[Field, ...],
    size: int,
    header: int,
    storage: StorageOptions,
) -> ArrayGroup:
    if file.size < header or not file.size:
        raise InputError(
            f"{file.uri}: has {format_count(file.size, 'byte')}, expected "
            f"{f'a header of {header:,} and ' if header else ''}records of {size:,}: "
            "copy the file again, or leave it out of the inputs"
        )
    split = parse_name_role(file.path.rpartition("/")[2].rpartition(".")[0]).split
    part = create_record_group(file, size, fields, split, header)
    if part.tail_bytes and (other := _guess_layout(file, storage)):
        raise InputError(
            f"{file.uri}: {file.size:,} bytes are not a whole number of records: "
            f"{format_count(part.tail_bytes, 'byte')} follow {format_count(part.num_rows, 'record')} of "
            f"{size:,} ({size - part.tail_bytes:,} are missing to the next). {other}. "
            "Correct `record` or `header_bytes`, or copy the file again if it is cut "
            "short"
        )
    return part


def _guess_layout(file: InputFile, storage: StorageOptions) -> str:
    """Returns a hint at the layout that a file's first bytes or size suggest, or ""."""
    head = read_range(file.uri, 0, min(16, file.size), storage, file.stat)
    for mark, description in _SIGNATURES:
        if head.startswith(mark):
            return f"{file.path} is {description}"
    if len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and head[3] < 9:
        return f"{file.path} begins like an IDX file (convert idx)"
    fits = [
        name
        for name, size in _LAYOUT_SIZES.items()
        if file.size and not file.size % size
    ]
    if fits:
        return f"the size of {file.path} fits records of {' or '.join(fits)}"
    return ""


def parse_record(text: str, byte_order: str) -> tuple[tuple[Field, ...], int]:
    """Parses the option `record`; returns the fields and the size of a record.

    Raises:
      UsageError: the declaration is invalid.
    """
    try:
        return _parse_record(text.strip(), ">" if byte_order == "big" else "<")
    except ValueError as error:
        raise UsageError(f"`record`: {error}") from None


def _parse_record(text: str, order: str) -> tuple[tuple[Field, ...], int]:
    fields: list[Field] = []
    at = offset = 0
    if len(text) > _MAX_DECLARATION_CHARACTERS:
        raise ValueError(
            f"{len(text):,} characters, expected at most {_MAX_DECLARATION_CHARACTERS:,}"
        )
    while at < len(text) or not fields:
        match = _FIELD.match(text, at)
        if not match:
            raise ValueError(f"cannot read {text[at : at + 40]!r}; {_EXPECTED_FORM}")
        try:
            fields.append(_parse_field(match, order, offset))
        except ValueError as error:
            raise ValueError(f"{match[0]!r}: {error}") from None
        offset += fields[-1].num_bytes
        at = match.end()
        if text[at : at + 1] not in ("", ",") or text[at:] == ",":
            unparsed_text = text[at : at + 40]
            raise ValueError(
                f"cannot read {unparsed_text!r} after {match[0]!r}; {_EXPECTED_FORM}"
            )
        at += 1
    if offset > MAX_ROW_BYTES:
        raise ValueError(
            f"a record has {offset:,} bytes, expected at most {MAX_ROW_BYTES:,}"
        )
    named_fields = [field for field in fields if field.name != "_"]
    if not named_fields:
        raise ValueError(f"has no field with a name; {_EXPECTED_FORM}")
    name, times = Counter(field.name for field in named_fields).most_common(1)[0]
    if times > 1:
        raise ValueError(f"two fields are named {name!r}: rename one of them")
    return tuple(named_fields), offset


def _parse_field(match: re.Match[str], order: str, offset: int) -> Field:
    name, kind = match["name"].strip(), match["type"]
    sizes = [size.strip() for size in (match["shape"] or "").split(",")]
    if match["shape"] is not None and not all(map(str.isdecimal, sizes)):
        raise ValueError(f"found [{match['shape']}]; {_EXPECTED_FORM}")
    shape = tuple(map(int, sizes)) if match["shape"] is not None else ()
    if 0 in shape or len(shape) > 8 or math.prod(shape) > MAX_ROW_BYTES:
        raise ValueError(
            "expected one to eight sizes of at least 1, together at most "
            f"{MAX_ROW_BYTES:,} values"
        )
    if kind == "bytes":
        if len(shape) != 1 or match["axes"] is not None:
            example = f"'{name}:bytes[10]'"
            raise ValueError(f"bytes have one size and no axes, as in {example}")
        return Field(name, f"|V{shape[0]}", offset=offset)
    if kind not in TYPES:
        type_names = ", ".join(TYPES)
        raise ValueError(
            f"{kind!r} is not a type; expected one of {type_names} or bytes"
        )
    dtype = f"{'|' if TYPES[kind][1] == '1' else order}{TYPES[kind]}"
    return Field(name, dtype, shape, _parse_axes(match["axes"], len(shape)), offset)


def _parse_axes(declared: str | None, rank: int) -> tuple[int, ...]:
    if declared is None:
        return ()
    stored_order, arrow, requested_order = declared.strip().partition("->")
    is_order = len(stored_order) == rank == len(set(stored_order))
    if not arrow or not is_order or sorted(stored_order) != sorted(requested_order):
        raise ValueError(
            f"axes {declared!r} do not define the order of {rank} sizes; expected one "
            "letter for each stored axis, ->, and the same letters in the wanted "
            "order, such as chw->hwc. Quote the declaration, because the shell "
            "interprets >"
        )
    axes = tuple(stored_order.index(letter) for letter in requested_order)
    return () if axes == tuple(range(rank)) else axes


def _find_stl10(files: Sequence[InputFile], storage: StorageOptions) -> ArrayInput:
    files_by_name: dict[str, InputFile] = {}
    skipped = []
    for file in files:
        name = PurePosixPath(file.path).name
        if name not in {*_STL10_FILES, _UNLABELED, "class_names.txt"}:
            skipped.append(("not one of STL-10's", file.path))
        elif name in files_by_name:
            raise InputError(
                f"{file.uri} and {files_by_name[name].uri}: expected one {name}: convert two copies "
                "of STL-10 one by one"
            )
        else:
            files_by_name[name] = file
    parts = []
    for split in _STL10_SPLITS:
        names = (f"{split}_X.bin", f"{split}_y.bin")
        for name, other in (names, names[::-1]):
            if other in files_by_name and name not in files_by_name:
                raise InputError(
                    f"{files_by_name[other].uri}: {name} is missing next to it; STL-10 has "
                    "images and labels in two files: name both, or leave this one out"
                )
        if names[0] in files_by_name:
            arrays = (
                _open_array(files_by_name[names[0]], _IMAGE),
                _open_array(files_by_name[names[1]], _LABEL),
            )
            require_same_rows(arrays)
            parts.append(ArrayGroup(arrays, split, positions_per_row=_IMAGE.num_bytes))
    if _UNLABELED in files_by_name:
        array = _open_array(files_by_name[_UNLABELED], _IMAGE, _NO_LABEL)
        parts.append(
            ArrayGroup((array,), "unlabelled", positions_per_row=_IMAGE.num_bytes)
        )
    if not parts:
        raise InputError(
            "no file of STL-10: expected train_X.bin with train_y.bin, test_X.bin with "
            "test_y.bin, or unlabeled_X.bin"
        )
    classes: tuple[str, ...] = STL10_NAMES
    checksums: list[FileChecksum] = []
    if file_of_names := files_by_name.get("class_names.txt"):
        classes, checksum = read_names(file_of_names, storage, len(STL10_NAMES))
        checksums.append(checksum)
    return ArrayInput(
        tuple(parts), (("label", classes),), "STL-10", skipped, tuple(checksums)
    )


def _open_array(file: InputFile, *fields: Field) -> RowArray:
    size = sum(field.num_bytes for field in fields)
    rows, num_extra_bytes = divmod(file.size, size)
    if num_extra_bytes:
        raise InputError(
            f"{file.uri}: has {file.size:,} bytes, {num_extra_bytes:,} more than {format_count(rows, 'row')} of "
            f"{size:,}; expected a whole number. The file is cut short: copy it again"
        )
    return RowArray(file, 0, size, rows, fields)


SIDE, CHANNELS = 32, 3

_TRAIN_FILE = re.compile(r"data_batch_\d+\.bin|train\.bin", re.IGNORECASE)
_TEST_FILE = re.compile(r"test_batch(_\d+)?\.bin|test\.bin", re.IGNORECASE)
_CIFAR100_FILE = re.compile(r"(train|test)\.bin", re.IGNORECASE)


class CifarLayout(NamedTuple):
    """The layout of a CIFAR record: one byte for each label, then the pixels."""

    variant: Literal["cifar10", "cifar100"]
    title: str
    labels: tuple[tuple[str, int, str], ...]  # column, number of classes, names file

    @property
    def record_bytes(self) -> int:
        """Returns the size of a record in bytes."""
        return len(self.labels) + SIDE * SIDE * CHANNELS

    @property
    def fields(self) -> tuple[Field, ...]:
        """Returns the fields of a record."""
        planes = (CHANNELS, SIDE, SIDE)
        sizes = {"height": SIDE, "width": SIDE, "depth": CHANNELS}
        return (
            Field("image", "|u1", planes, (1, 2, 0), offset=len(self.labels)),
            *(Field(name, "|u1", offset=n) for n, (name, *_) in enumerate(self.labels)),
            *(Field(name, "<i8", constant_value=size) for name, size in sizes.items()),
        )


CIFAR10 = CifarLayout("cifar10", "CIFAR-10", (("label", 10, "batches.meta.txt"),))
_COARSE = ("coarse_label", 20, "coarse_label_names.txt")
_FINE = ("label", 100, "fine_label_names.txt")
CIFAR100 = CifarLayout("cifar100", "CIFAR-100", (_COARSE, _FINE))
_LAYOUTS = {layout.variant: layout for layout in (CIFAR10, CIFAR100)}
_NAME_FILES = {name for layout in _LAYOUTS.values() for *_, name in layout.labels}


def find_cifar(
    options: CifarOptions, files: Sequence[InputFile], storage: StorageOptions
) -> ArrayInput:
    """Finds the records of CIFAR-10 or CIFAR-100."""
    by_name = {PurePosixPath(file.path).name: file for file in files}
    record_files, skipped = [], []
    for file in files:
        is_data, name = _is_binary_file(file), PurePosixPath(file.path).name
        if not is_data and name not in _NAME_FILES:
            skipped.append(("does not end in .bin", file.path))
            continue
        if file.problem:
            raise unreadable_error(file)
        if is_data and not file.size:
            raise InputError(
                f"{file.uri}: is empty, expected CIFAR records: copy the file again, or "
                "leave it out of the inputs"
            )
        if is_data:
            record_files.append(file)
    if not record_files:
        raise InputError("no CIFAR data: no .bin file among the inputs")
    layout = find_layout(record_files, options.variant)
    size, names, checksums = layout.record_bytes, [], []
    for label, number, name in layout.labels:
        class_names = tuple(map(str, range(number)))
        if name in by_name:
            class_names, checksum = read_names(by_name[name], storage, number)
            checksums.append(checksum)
        names.append((label, class_names))
    return ArrayInput(
        tuple(
            create_record_group(file, size, layout.fields, parse_split(file.path))
            for file in record_files
        ),
        tuple(names),
        f"{layout.title}, {size:,} bytes each",
        skipped,
        tuple(checksums),
        f"expected a whole {layout.variant} record of {size} ({len(layout.labels)} "
        f"label + {SIDE} x {SIDE} x {CHANNELS}): the file is cut short",
    )


def _is_binary_file(file: InputFile) -> bool:
    return file.path.lower().endswith(".bin")


def find_layout(files: Sequence[InputFile], variant: Variant) -> CifarLayout:
    """Returns the layout of all files: the given variant, or detected by name and size.

    Raises:
      InputError: two files have different layouts.
    """
    if variant != "auto":
        return _LAYOUTS[variant]
    layout = detect_layout(files[0])
    for file in files[1:]:
        if (other := detect_layout(file)) != layout:
            raise InputError(
                f"{files[0].path} is {layout.variant} and {file.path} is "
                f"{other.variant}: convert them into two datasets, or set `variant`"
            )
    return layout


def detect_layout(file: InputFile) -> CifarLayout:
    """Detects CIFAR-10 or CIFAR-100 by the name of a file, otherwise by its size."""
    name = PurePosixPath(file.path).name
    fits = [
        layout for layout in _LAYOUTS.values() if not file.size % layout.record_bytes
    ]
    if parse_split(name):
        named_layout = CIFAR100 if _CIFAR100_FILE.fullmatch(name) else CIFAR10
        if fits and named_layout not in fits:
            raise InputError(
                f"{file.uri}: the name is one of {named_layout.title}, but {file.size} bytes is "
                f"a whole number of {fits[0].title}'s {fits[0].record_bytes:,}-byte "
                "records; use `variant=cifar10` or `variant=cifar100`"
            )
        return named_layout  # the file may be truncated
    if len(fits) == 1:
        return fits[0]
    for layout in (CIFAR100, CIFAR10):  # "cifar100" also holds "cifar10"
        if layout.variant in name.lower().replace("-", "").replace("_", ""):
            return layout
    raise InputError(
        f"{file.uri}: {file.size} bytes is a whole number of "
        f"{'both' if fits else 'neither'} 3,073-byte (CIFAR-10) {'and' if fits else 'nor'}"
        " 3,074-byte (CIFAR-100) records; use `variant=cifar10` or `variant=cifar100`"
    )


def parse_split(path: str) -> str:
    """Returns the split that the name of a CIFAR file states, or ""."""
    name = PurePosixPath(path).name
    if _TEST_FILE.fullmatch(name):
        return "test"
    return "train" if _TRAIN_FILE.fullmatch(name) else ""


_DEFAULTS = CifarOptions(variant="auto")


@dataclass(frozen=True)
class CifarSource(ArraysSource):
    """A source of CIFAR binary files, which skips all other files."""

    find: FindArrays = find_cifar
    options: CifarOptions = _DEFAULTS

    handles_unreadable = True
    has_fixed_roles = True

    def input_splits(self) -> tuple[str, ...]:
        return ()  # every CIFAR dataset has the split train, even without files for it

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return sum(file.size for file in files)

    def is_listed_field(self, field: Field) -> bool:
        return field.constant_value is None and not field.is_bytes

    def read_for_statistics(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Reads the labels of a range, without converting the pixels."""
        return self.list_references(input_range, range_findings)

    def _origins(
        self, part: ArrayGroup, input_range: InputRange, positions: I64
    ) -> U64:
        ordinals = (positions - input_range.start) // part.positions_per_row
        return origins_in(part.file.path, input_range.start, ordinals)
