"""Makes the cases of images: folders, labels, pixels, odd files, archives, splits."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from random import Random
from typing import Any

from case_lines import section
from PIL import Image

RUN = "convert images"
PICTURES = "../../samples/images"
LABELLED = "../../samples/labelled"
MODES = {
    "png": ["RGB", "L", "RGBA", "P", "1", "I;16", "LA"],
    "jpeg": ["RGB", "L", "CMYK"],
}
MODES |= {"gif": ["P"], "bmp": ["RGB", "L", "P", "1"], "webp": ["RGB", "RGBA"]}
MODES |= {"tiff": ["RGB", "L", "F", "I;16"]}


def picture(
    name: str,
    mode: str = "RGB",
    kind: str = "png",
    size: tuple[int, int] = (20, 14),
    **more: Any,
) -> bytes:
    random = Random(name)
    image = Image.frombytes(
        "RGB", size, random.randbytes(size[0] * size[1] * 3)
    ).resize(size)
    image = (
        image.convert("L").convert(mode)
        if mode in ("I;16", "F", "LA")
        else image.convert(mode)
    )
    held = io.BytesIO()
    image.save(held, kind, **more)
    return held.getvalue()


def folder(names: str, **more: Any) -> dict[str, bytes]:
    return {f"in/{name}": picture(name, **more) for name in names.split()}


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = held.getvalue()
    return (
        data[:4] + bytes(4) + data[8:] if mode == "w:gz" else data
    )  # without the time


def zip_of(files: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", packing) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, packing)
    return held.getvalue()


def image_cases() -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    for (options,) in section("image options", 1):
        name = (
            options.replace("--", "").replace(" ", "-").replace("/", "_")[:40]
            or "plain"
        )
        schema = "features:\n  image: bytes\n  label: int64\n"
        filled = options.replace("{L}", LABELLED)
        yield "", name, {"in/s.yaml": schema}, [f"{RUN} {PICTURES} out {filled}"]
    for name, names in section("image layouts", 2):
        runs = [
            f"{RUN} in out",
            f"{RUN} in out2 --plan",
            f"{RUN} in out3 --split-from none",
        ]
        yield "", f"layout-{name}", folder(names), runs
    two = folder("cat/1.png cat/2.png dog/3.png dog/4.png")
    for kind, modes in MODES.items():
        for mode in modes:
            files = two | {f"in/cat/odd.{kind}": picture(kind, mode, kind)}
            runs = [f"{RUN} in out", f"{RUN} in out2 --undecodable reencode"]
            yield (
                "",
                f"mode-{kind}-{mode}",
                files,
                [*runs, f"{RUN} in out3 --pixels raw --channels 3 --resize 8x8"],
            )
    frames = [Image.new("P", (6, 5), n) for n in range(3)]
    held = io.BytesIO()
    frames[0].save(held, "gif", save_all=True, append_images=frames[1:])
    for more in (
        "",
        "--undecodable reencode",
        "--undecodable reject --max-rejects 1",
        "--animated reject --max-rejects 1",
        "--resize 4x4",
    ):
        yield (
            "",
            "animated",
            two | {"in/cat/moves.gif": held.getvalue()},
            [f"{RUN} in out {more}"],
        )
    turned = Image.new("RGB", (9, 5), "red")
    exif = turned.getexif()
    exif[0x112] = 6
    held = io.BytesIO()
    turned.save(held, "jpeg", exif=exif)
    for more in (
        "",
        "--orientation apply",
        "--resize 8x8",
        "--orientation keep --resize 8x8",
        "--orientation apply --reencode png",
    ):
        yield (
            "",
            "turned",
            two | {"in/cat/turned.jpg": held.getvalue()},
            [f"{RUN} in out {more}"],
        )
    whole = {"png": picture("b"), "jpg": picture("b", kind="jpeg"), "gif": picture("b", "P", "gif"), "bmp": picture("b", kind="bmp"), "webp": picture("b", kind="webp"), "tif": picture("b", kind="tiff")}  # fmt: skip
    for kind, data in whole.items():
        broken = {
            "cut": data[: len(data) // 2],
            "head": data[:12],
            "more": data + b"behind",
            "flip": data[:60] + b"\xff\x00" + data[62:],
        }
        for how, bad in broken.items():
            files = two | {f"in/cat/bad.{kind}": bad}
            runs = [
                f"{RUN} in out",
                f"{RUN} in out --max-rejects 1 --overwrite --check-pictures decode",
            ]
            yield (
                "",
                f"broken-{kind}-{how}",
                files,
                [*runs, f"{RUN} in out3 --max-rejects 1 --resize 8x8"],
            )
    for name, more in {"empty": b"", "text": b"hello", "html": b"<html>"}.items():
        files = two | {
            "in/cat/odd.jpg": more,
            "in/cat/odd.txt": more,
            "in/none/x.txt": more,
        }
        yield (
            "",
            f"broken-{name}",
            files,
            [
                f"{RUN} in out",
                f"{RUN} in/cat in/dog out2 --max-rejects 1",
                "rejects out2",
            ],
        )
    inner = {path.removeprefix("in/"): data for path, data in two.items()}
    archives = {
        "a.tar": tar_of(inner), "a.tar.gz": tar_of(inner, "w:gz"), "a.zip": zip_of(inner), "packed.zip": zip_of(inner, zipfile.ZIP_DEFLATED),
        "cut.tar": tar_of(inner)[:3000], "cut.zip": zip_of(inner)[:3000], "up.tar": tar_of({"../x/1.png": inner["cat/1.png"]}), "empty.tar": tar_of({}),
        "dot.tar": tar_of({f"./{name}": data for name, data in inner.items()}), "twice.tar": tar_of(inner) + tar_of(inner),
    }  # fmt: skip
    for name, data in archives.items():
        runs = [
            f"{RUN} in/{name} out",
            f"{RUN} in/{name} out2 --plan",
            f"{RUN} in/{name} out3 --exchange scratch --resize 8x8",
        ]
        yield "", f"archive-{name}", {f"in/{name}": data}, [*runs, f"{RUN} in out4"]
    for name, table in section("image tables", 2):
        run = f"{RUN} in out --label-table labels.csv"
        runs = [
            run,
            f"{run} --label-separator '|' --max-rejects 4 --overwrite",
            f"{run} --unlisted leave_out --exchange engine --overwrite --max-rejects 4 --table-rows object",
        ]
        yield (
            "",
            f"table-{name}",
            two | {"in/labels.csv": table},
            [*runs, "rejects out"],
        )
    rows = [
        {
            "path": f"{d}/{n}.png",
            "labels": ["x", "y"][: n % 3],
            "box": [[n, 0.5]] * (n % 2),
            "deep": {"a": n},
        }
        for d, n in (("cat", 1), ("cat", 2), ("dog", 3), ("dog", 4))
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    for more in (
        "",
        "--label-map in/map.txt",
        "--label-map in/map.json",
        "--split a=0.5 --split b=0.5 --split-by deep/a",
        "--exchange engine",
        "--pixels raw --resize 4x4 --channels 3",
    ):
        files = two | {
            "in/l.jsonl": lines,
            "in/map.txt": "y\nx\n",
            "in/map.json": '{"x": 0, "y": 1}',
        }
        yield "", "table-jsonl", files, [f"{RUN} in out --label-table l.jsonl {more}"]
    for name, text in section("image label maps", 2):
        file = "map.json" if "json" in name else "map.csv" if "," in text else "map.txt"
        yield (
            "",
            f"map-{name}",
            two | {f"in/{file}": text},
            [
                f"{RUN} in out --label-map {file}",
                f"{RUN} in out2 --label-map in/{file}",
            ],
        )
