"""Archives that are hostile, damaged or odd: each is told, and nothing is written."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_tools import ARCHIVES, Members, compressed_tar_of, tar_of, zip_of

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import read_member
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.temporary import TEMPORARY

MEMBERS = {"cat/1.jpg": b"1" * 700, "dog/2.jpg": b"2" * 900}
Pack = Callable[[Members], bytes]


def listed(folder: Path, name: str, data: bytes) -> list[InputFile]:
    path = folder / name
    path.write_bytes(data)
    return list_inputs([str(path)], keep_unreadable=True)[1]


def names(files: list[InputFile]) -> list[str]:
    return [file.path.partition("!/")[2] for file in files]


@pytest.mark.parametrize(("kind", "pack"), ARCHIVES.items(), ids=ARCHIVES)
def test_junk_and_odd_spellings(tmp_path: Path, kind: str, pack: Pack) -> None:
    more = {"__MACOSX/cat/._1.jpg": b"x", ".hidden": b"", "./a//b/../é.txt": b"ab"}
    files = listed(tmp_path, kind, pack(MEMBERS | more))
    assert names(files) == ["a/é.txt", "cat/1.jpg", "dog/2.jpg"]
    assert [file.size for file in files] == [2, 700, 900]
    assert {file.given_folder for file in files} == {f"{kind}!"}
    assert read_file(files[0].uri, stat=files[0].stat) == b"ab"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "C:/x"])
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_that_lead_out(tmp_path: Path, name: str, pack: Pack) -> None:
    with pytest.raises(InputError, match=r"in\.zip: .* which leads out of the archive"):
        listed(tmp_path, "in.zip", pack(MEMBERS | {name: b"x"}))
    assert [path.name for path in tmp_path.iterdir()] == ["in.zip"]


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    twice = io.BytesIO(zip_of(MEMBERS))
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(twice, "a") as out,
    ):
        out.writestr("cat/1.jpg", b"newer")
    with pytest.raises(InputError, match=r"several members named 'cat/1\.jpg'"):
        listed(tmp_path, "in.zip", twice.getvalue())
    with pytest.raises(InputError, match=r"several members named 'cat/1\.jpg'"):
        listed(tmp_path, "in.tar", tar_of({"./cat/1.jpg": b"x", **MEMBERS}))


def test_members_of_tar_that_are_no_files(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, target in (
            ("folder", tarfile.DIRTYPE, ""),
            ("soft", tarfile.SYMTYPE, "a"),
            ("hard", tarfile.LNKTYPE, "a"),
            ("lost", tarfile.LNKTYPE, "nowhere"),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("disk", tarfile.BLKTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            if name == "soft":
                data = tarfile.TarInfo("a")
                data.size = 3
                tar.addfile(data, io.BytesIO(b"abc"))
            tar.addfile(info)
        broken = tarfile.TarInfo("caf\udce9")
        tar.addfile(broken)
    files = listed(tmp_path, "in.tar", out.getvalue())
    told = dict(zip(names(files), [file.problem.partition(" (")[0] for file in files]))  # noqa: B905
    assert told == {
        "a": "",
        "caf\\xe9": "the file's name is not UTF-8, as names in records must be; rename it",
        "disk": "not a regular file",
        "hard": "",
        "lost": "a link to nowhere",
        "pipe": "not a regular file",
        "soft": "a link to a",
    }
    (hard,) = (file for file in files if file.path.endswith("hard"))
    assert read_file(hard.uri, stat=hard.stat) == b"abc"


def test_members_of_zip_that_cannot_be_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("bz2", b"x", zipfile.ZIP_BZIP2)
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        packed.writestr(link, b"bz2")
        windows = zipfile.ZipInfo("x\\y")
        windows.create_system = 0
        packed.writestr(windows, b"y")
        packed.writestr("locked", b"z")
    data = bytearray(out.getvalue())
    data[data.rindex(b"PK\1\2") + 8] |= 1
    files = listed(tmp_path, "in.zip", bytes(data))
    told = dict(zip(names(files), [file.problem.partition(" (")[0] for file in files]))  # noqa: B905
    assert told == {
        "bz2": "compressed by bzip2",
        "link": "a link",
        "locked": "encrypted",
        "x/y": "",
    }


@pytest.mark.parametrize(("kind", "pack"), ARCHIVES.items(), ids=ARCHIVES)
def test_cut_short_anywhere(tmp_path: Path, kind: str, pack: Pack) -> None:
    data = pack(MEMBERS)
    # Of a tar archive, 1,024 zeros are the end, and padding follows.
    whole = 6 * 512 + 1024 if kind == "in.tar" else len(data)
    for size in range(0, whole - 512, max(1, len(data) // 19)):
        with pytest.raises(InputError, match=rf"{kind}: .*(again|no files)"):
            listed(tmp_path, kind, data[:size])


def test_tar_archives_that_hide_members(tmp_path: Path) -> None:
    one = tar_of({"a": b"1"})
    with pytest.raises(InputError, match=r"byte 1,024: are these several archives"):
        listed(tmp_path, "in.tar", one + tar_of({"b": b"2"}))
    two = bytearray(tar_of({"a": b"1", "b": b"2"}))
    two[1024 + 150] ^= 1  # the checksum of the second header
    with pytest.raises(InputError, match=r"no member header at byte 1,024"):
        listed(tmp_path, "in.tar", bytes(two))


def test_damaged_members_of_zip(tmp_path: Path) -> None:
    for method, told in (
        (zipfile.ZIP_STORED, "has the CRC"),
        (zipfile.ZIP_DEFLATED, "inflate"),
    ):
        data = bytearray(zip_of({"a": os.urandom(900)}, method))
        data[300] ^= 64
        (file,) = listed(tmp_path, "in.zip", bytes(data))
        with pytest.raises(
            InputError, match=rf"in\.zip!/a: .*({told}|the CRC).*copy it again"
        ):
            read_file(file.uri, stat=file.stat)


def test_members_that_share_bytes(tmp_path: Path) -> None:
    """As in archives of some kB that unpack to petabytes."""
    data = bytearray(zip_of({"a": b"x" * 99, "b": b"y" * 99}, zipfile.ZIP_STORED))
    second = data.rindex(b"PK\1\2")
    struct.pack_into("<I", data, second + 42, 0)  # where its header is
    with pytest.raises(InputError, match="but ends before byte 0"):
        listed(tmp_path, "in.zip", bytes(data))


@pytest.mark.parametrize("kind", ["in.zip", "in.tar.gz", "in.tar.xz", "in.tar.zst"])
def test_what_unpacks_to_far_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(read_member, "GUARDED_BYTES", 1 << 17)
    data = ARCHIVES[kind]({"a": bytes(1 << 20)})
    with pytest.raises(
        InputError, match=r"unpacks to more than .*, unpack it yourself"
    ):
        listed(tmp_path, kind, data)
    assert listed(tmp_path, kind, ARCHIVES[kind]({"a": os.urandom(1 << 18)}))


def test_no_room_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match=r"No space left on device\. Free some space"):
        listed(tmp_path, "in.tar.gz", compressed_tar_of({"room": b"x"}, "gzip"))


def test_not_archives(tmp_path: Path) -> None:
    for name, data in {
        "a.zip": b"a,b\n1,2\n",
        "b.tar": b"",
        "c.tgz": b"\x1f\x8b\x08\x00",
        "d.tar.gz": compressed_tar_of({}, "gzip"),
    }.items():
        with pytest.raises(InputError, match=rf"{name}: .*(archive|decompressed)"):
            listed(tmp_path, name, data)


def test_only_what_is_named_is_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    listed(tmp_path / "in", "a.zip", zip_of({"x/1": b"1", "x/y/2": b"2"}))
    for given, paths in {
        "in": ["a.zip"],
        "in/**": ["a.zip"],
        "in/*.zip": ["a.zip!/x/1", "a.zip!/x/y/2"],
        "in/a.zip": ["a.zip!/x/1", "a.zip!/x/y/2"],
    }.items():
        root, files = list_inputs([str(tmp_path / given)])
        assert root == str(tmp_path / "in")
        assert [file.path for file in files] == paths
    assert {file.given_folder for file in files} == {
        "a.zip!/x"
    }  # the folder that it packs
    _, plain = list_inputs([str(tmp_path / "in/a.zip")], open_archives=False)
    assert [file.path for file in plain] == ["a.zip"]


def test_a_file_is_unpacked_once_and_leaves_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    TEMPORARY.choose_folder(str(folder / "not" / "there"))
    files = listed(tmp_path, "in.tar.gz", compressed_tar_of(MEMBERS, "gzip"))
    with monkeypatch.context() as patched:
        patched.setattr(read_member.UNPACKED, "_write", pytest.fail)
        for file in files:
            assert read_file(file.uri, stat=file.stat) == MEMBERS[file.path[11:]]
        assert not any(folder.iterdir())
    read_member.UNPACKED.close()  # as in another process, which unpacks it again
    for file in files:
        assert read_file(file.uri, stat=file.stat) == MEMBERS[file.path[11:]]
    assert not any(folder.iterdir())
    monkeypatch.setattr(read_member, "MOST_FILES", 1)
    for number in range(5):
        listed(tmp_path, f"{number}.tgz", compressed_tar_of(MEMBERS, "gzip"))
    assert len(read_member.UNPACKED._files) <= 2


def test_the_ways_out_that_name_options_of_tar(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_bytes(b"abc")
    (folder / "b").symlink_to("a")
    (folder / "c").hardlink_to(folder / "a")
    (folder / "d").write_bytes(b"d" * 10)
    os.truncate(folder / "d", 1 << 20)

    def packed(name: str, *options: str) -> list[InputFile]:
        words = [
            "tar",
            "-c",
            *options,
            "-f",
            str(tmp_path / name),
            "-C",
            str(folder),
            ".",
        ]
        subprocess.run(words, check=True)
        return list_inputs([str(tmp_path / name)], keep_unreadable=True)[1]

    plain = packed("plain.tar", "--sparse")
    assert [bool(file.problem) for file in plain] == [False, True, False, True]
    assert "tar --dereference --hard-dereference" in plain[1].problem
    assert "without tar --sparse" in plain[3].problem
    whole = packed("whole.tar", "--dereference", "--hard-dereference")
    assert [file.problem for file in whole] == [""] * 4
    assert [read_file(file.uri, stat=file.stat) for file in whole] == [
        *(b"abc", b"abc", b"abc", (folder / "d").read_bytes())
    ]
    for name in ("1.tar", "2.tar"):
        (tmp_path / name).write_bytes(tar_of({name: b"x"}))
    words = ["tar", "--concatenate", "-f", str(tmp_path / "1.tar")]
    subprocess.run([*words, str(tmp_path / "2.tar")], check=True)
    assert names(list_inputs([str(tmp_path / "1.tar")])[1]) == ["1.tar", "2.tar"]


@pytest.mark.parametrize(
    ("names", "reason"), [(["", "a"], "a file without a name"), ([".", "a"], "without")]
)
def test_a_zip_file_with_a_member_without_a_name(
    tmp_path: Path, names: list[str], reason: str
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            member = zipfile.ZipInfo("x")
            member.filename = name
            archive.writestr(member, b"1")
    with pytest.raises(InputError, match=reason):
        listed(tmp_path, "in.zip", packed.getvalue())


@pytest.mark.parametrize("far", [9, 1 << 20])
def test_a_zip_file_whose_directory_is_said_to_be_elsewhere(
    tmp_path: Path, far: int
) -> None:
    data = bytearray(zip_of({"a": b"1", "b": b"2"}, zipfile.ZIP_STORED))
    end = data.rindex(b"PK\5\6")
    (start,) = struct.unpack_from("<I", data, end + 16)
    struct.pack_into("<I", data, end + 16, start + far)
    with pytest.raises(InputError, match=r"in\.zip.*copy it again"):
        listed(tmp_path, "in.zip", bytes(data))
