"""Folders of audio files: their labels, rejects, samples, and what is told of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from job_tools import (
    SAMPLES,
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    manifest_of,
    recordmill,
)
from sounds import sound

from recordmill import open_dataset

pytestmark = pytest.mark.usefixtures("without_beam")

SOUNDS = SAMPLES / "sounds"
RAW: list[Argument] = ["--audio", "raw"]


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """A file of each kind, in two classes, of different lengths."""
    folder = tmp_path / "in"
    forms = ("16.wav", "24.flac", "vorbis.ogg", "layer3.mp3", "float.wav", "opus.ogg")
    for number, form in enumerate(forms):
        path = folder / ("cat", "dog")[number % 2] / form
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound(form, 2000 + 100 * number))
    return folder


def values(folder: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    """The features of each record, by the name of its file."""
    found = {}
    for example in examples_of(folder, split):
        features = {
            name: list(each.bytes_list.value or each.int64_list.value)
            for name, each in example.features.feature.items()
        }
        found[features.pop("filename")[0].decode()] = features
    return found


def test_files_are_kept_with_what_their_headers_say(
    tmp_path: Path, sounds: Path
) -> None:
    ran = convert("audio", sounds, tmp_path / "out")
    found = values(tmp_path / "out")
    assert len(found) == 6
    for name, features in found.items():
        info = soundfile.info(sounds / name)
        assert features == {
            "audio": [(sounds / name).read_bytes()],
            "sample_rate": [info.samplerate],
            "channels": [info.channels],
            "frames": [info.frames],
            "label": [("cat", "dog").index(name[:3])],
        }
    assert "classes: 2 (cat 3, dog 3)" in ran.err
    assert "audio files: .wav 2, .ogg 2, .flac 1, .mp3 1" in ran.err
    assert "sample rates: 8,000 Hz (6)" in ran.err
    facts = json.loads((tmp_path / "out/run.json").read_bytes())["understood"]["facts"]
    assert facts["channels"] == "1 (6)"
    assert_whole(tmp_path / "out")


def test_all_exchanges_give_the_same_bytes(tmp_path: Path, sounds: Path) -> None:
    for options in ([], RAW):
        exchanges = ("scratch", "engine", *([] if options else ["reference"]))
        for exchange in exchanges:
            out = tmp_path / f"{len(options)}{exchange}" / "out"
            convert("audio", sounds, out, "--exchange", exchange, *options)
        first, *others = (tmp_path / f"{len(options)}{each}/out" for each in exchanges)
        assert all(contents(other) == contents(first) for other in others)


def test_samples_are_not_exchanged_by_reference(tmp_path: Path, sounds: Path) -> None:
    ran = recordmill(
        "convert", "audio", sounds, tmp_path / "out", *RAW, "--exchange", "reference"
    )
    assert ran.status == 2
    assert "--exchange" in ran.err


def test_labels_come_from_tables_names_and_lists(tmp_path: Path) -> None:
    table = SAMPLES / "labelled/sounds.csv"
    convert("audio", SOUNDS, tmp_path / "a", "--label-table", table)
    assert {*values(tmp_path / "a", "test")} == {
        "sounds/chord/2.mp3",
        "sounds/tone/1.flac",
    }
    rows = {row["filename"]: row for row in open_dataset(tmp_path / "a", "train")}
    assert rows["sounds/tone/0.wav"]["speaker"] == 2
    assert rows["sounds/tone/0.wav"]["label"] == 1
    pattern = r"(?P<label>\w+)/(?P<take>\d)\..*"
    convert("audio", SOUNDS, tmp_path / "b", "--label-pattern", pattern)
    assert values(tmp_path / "b")["chord/2.mp3"]["take"] == [2]
    ran = convert("audio", SOUNDS, tmp_path / "c", "--label-from", "none", "--plan")
    assert "audio files: .wav 2, .flac 2, .mp3 2" in ran.out + ran.err


def test_words_are_those_of_audio(tmp_path: Path) -> None:
    """Not those of images, which share the code."""
    (tmp_path / "t.csv").write_text("path,label\nchord/9.wav,chord\n")
    ran = recordmill(
        *("convert", "audio", SOUNDS, tmp_path / "out", "--label-table"),
        tmp_path / "t.csv",
    )
    assert ran.status == 65
    assert "no path (1 row) names an audio file; the first has" in ran.err
    (tmp_path / "none").mkdir()
    (tmp_path / "none/a.txt").write_text("prose")
    ran = recordmill("convert", "audio", tmp_path / "none", tmp_path / "out")
    assert (
        "no audio files among 1 input file (extensions: .txt); expected .wav"
    ) in ran.err
    assert "image" not in ran.err


@pytest.mark.parametrize("options", [[], RAW])
def test_files_that_are_cut_are_rejects(
    tmp_path: Path, sounds: Path, options: list[Argument]
) -> None:
    files = sorted(path for path in sounds.rglob("*") if path.is_file())
    for path in files[:-1]:
        path.write_bytes(path.read_bytes()[:-100])
    out = tmp_path / "out"
    ran = convert("audio", sounds, out, "--max-rejects", 5, *options)
    assert manifest_of(out)["rows_rejected"] == 5
    assert [*values(out)] == [str(files[-1].relative_to(sounds))]
    told = json.loads(recordmill("rejects", out, "--json").out)
    reasons = [each["reason"] for each in told["rows"]]
    assert all("is cut short" in reason for reason in reasons), reasons
    assert ran.status == 0


def test_damage_that_only_decoding_finds(tmp_path: Path) -> None:
    data = bytearray(sound("16.flac", 30_000))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/1.flac").write_bytes(data)
    (tmp_path / "in/a/2.flac").write_bytes(sound("16.flac"))
    convert("audio", tmp_path / "in", tmp_path / "kept")
    ran = recordmill(
        *("convert", "audio", tmp_path / "in", tmp_path / "out"),
        *("--check-audio", "decode"),
    )
    assert ran.status
    assert "flac cannot be decoded" in ran.err


def test_samples_are_those_that_libsndfile_decodes(
    tmp_path: Path, sounds: Path
) -> None:
    convert("audio", sounds, tmp_path / "out", *RAW)
    for name, features in values(tmp_path / "out").items():
        exact = "flac" in name or "16" in name
        with soundfile.SoundFile(sounds / name) as file:  # soundfile.read seeks first
            known = file.read(dtype="int16" if exact else "float32")
            rate = file.samplerate
        if not exact:
            known = np.rint(known * 32768).clip(-32768, 32767).astype(np.int16)
        assert features["audio"] == known.tolist()
        assert (features["sample_rate"], features["frames"]) == ([rate], [len(known)])
    for row in open_dataset(tmp_path / "out", "train"):
        assert (row["audio"].dtype, row["audio"].shape) == ("int16", (row["frames"],))


def test_samples_of_several_channels(tmp_path: Path) -> None:
    """All of one number: of the first file, or as the option says."""
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    for name, channels in (("1.wav", 2), ("2.wav", 1), ("3.wav", 2)):
        (folder / name).write_bytes(sound("16.wav", 10, channels))
    ran = recordmill("convert", "audio", folder.parent, tmp_path / "out", *RAW)
    assert "has 1 channels, expected 2, as in" in ran.err
    found = []
    for channels, names in ((2, [1, 3]), (1, [2])):
        out = tmp_path / f"out{channels}"
        given = ("--channels", channels, "--max-rejects", 2)
        convert("audio", folder.parent, out, *RAW, *given)
        assert sorted(values(out)) == [f"a/{n}.wav" for n in names]
        found.append(next(iter(open_dataset(out, "train")))["audio"].shape)
    assert found == [(10, 2), (10,)]
    ran = recordmill("convert", "audio", folder.parent, tmp_path / "x", "--channels", 2)
    assert (ran.status, "use --audio raw, or leave it out" in ran.err) == (2, True)
    for name in ("1.wav", "2.wav", "3.wav"):
        (folder / name).write_bytes(b"")
    ran = recordmill(
        "convert", "audio", folder, tmp_path / "y", *RAW, "--label-from", "0"
    )
    assert "is unknown: set --channels, or leave out these files" in ran.err


def test_files_are_appended(tmp_path: Path, sounds: Path) -> None:
    """With as many channels as those that are there, whatever the first new one has."""
    for options in ([], RAW):
        out = tmp_path / f"out{len(options)}"
        convert("audio", sounds, out, *options)
        new = sounds / "cat" / f"0{len(options)}.wav"
        new.write_bytes(sound("16.wav", 50, 2))
        ran = recordmill(
            "convert", "audio", sounds, out, "--append", "--max-rejects", 1, *options
        )
        assert ran.status == 0, ran.err
        assert len(values(out)) == 6 + (not options)
        new.unlink()


def test_a_missing_soundfile_is_named(
    tmp_path: Path, sounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    convert("audio", sounds, tmp_path / "out")
    for options in (RAW, ["--check-audio", "decode"]):
        ran = recordmill("convert", "audio", sounds, tmp_path / "x", *options)
        assert ran.status
        assert "pip install soundfile" in ran.err
        assert not (tmp_path / "x/manifest.json").exists()


def test_a_schema_file_declares_features(tmp_path: Path, sounds: Path) -> None:
    for options in ([], RAW):
        told = recordmill("schema", "infer", "audio", sounds, *options)
        assert told.status == 0, told.err
        (tmp_path / "s.yaml").write_text(told.out)
        out, same = tmp_path / f"a{len(options)}/d", tmp_path / f"b{len(options)}/d"
        convert("audio", sounds, out, *options)
        convert("audio", sounds, same, "--schema", tmp_path / "s.yaml", *options)
        assert values(out) == values(same)


def test_an_archive_of_sounds(tmp_path: Path, sounds: Path) -> None:
    import shutil

    shutil.make_archive(str(tmp_path / "sounds"), "tar", sounds)
    convert("audio", tmp_path / "sounds.tar", tmp_path / "out")
    assert {each["label"][0] for each in values(tmp_path / "out").values()} == {0, 1}


def test_a_file_without_its_name(tmp_path: Path) -> None:
    """Of FLAC the first bytes say what it is; other files are counted."""
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    (folder / "1").write_bytes(sound("16.flac"))
    (folder / "2.txt").write_text("prose")
    ran = convert("audio", tmp_path / "in", tmp_path / "out")
    assert [*values(tmp_path / "out")] == ["a/1"]
    assert "skipped: 1 file (.txt, no audio file content)" in ran.err


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["a|One, two|x", "b|One, three|y"], "columns with comma and 3 columns with"),
        (["a.wav,0.1,0.1", "b.wav,0.3,0.1"], "the header has column '0.1' 2 times"),
    ],
)
def test_a_table_of_labels_names_no_options_that_it_does_not_have(
    tmp_path: Path, rows: list[str], problem: str
) -> None:
    """LJSpeech's table has no header and pipes; those are options of CSV alone."""
    given, table = tmp_path / "in", tmp_path / "in/metadata.csv"
    given.mkdir()
    for name in "ab":
        (given / f"{name}.wav").write_bytes(sound("16.wav", 2000))
    table.write_text("\n".join(rows))
    job = ("audio", given, tmp_path / "out", "--label-column", "none", "--label-table")
    ran = recordmill("convert", *job, "metadata.csv")
    assert problem in ran.err
    assert "--delimiter" not in ran.err
    assert "--header" not in ran.err
    assert "Write it as CSV in UTF-8 with a header, or as JSON Lines" in ran.err
    # The ways out.
    table.write_text('file,text\na,"One, two"\nb,"One, three"\n')
    assert recordmill("convert", *job, "metadata.csv").status == 0
    lines = [{"file": name, "text": "One, two"} for name in "ab"]
    (given / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert recordmill("convert", *job, "m.jsonl", "--overwrite").status == 0


def test_classes_of_the_same_folders_are_told_without_an_option_for_masks(
    tmp_path: Path,
) -> None:
    """LibriSpeech has the same chapters below several speakers."""
    for path in ("84/121", "174/121"):
        (tmp_path / "in" / path).mkdir(parents=True)
        (tmp_path / "in" / path / "0.wav").write_bytes(sound("16.wav", 2000))
    ran = convert("audio", tmp_path / "in", tmp_path / "out")
    assert (
        "contain folders with the same names and numbers of files. If the folders"
        in ran.err
    )
    assert "--pair" not in ran.err
