"""Measure pictures in archives beside the same pictures in folders, in whole processes.

    python tests/bench/archives.py [--files 5000] [--repeat 3]

The pictures are those of `run.py images`. Each archive is converted beside the folder that
is packed in it; the ratio is the archive's median by the folder's. Exit status as run.py.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from statistics import median

from measure import run_measured

HERE = Path(__file__).resolve().parent


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000, help="pictures")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each")
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--python", type=Path, help="default: beside --recordmill")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    return parser.parse_args(argv)


def make_inputs(python: Path, num_files: int, folder: Path) -> list[Path]:
    """Make the pictures and pack them; that also leaves them in the page cache."""
    words = [
        python,
        HERE / "inputs.py",
        "images",
        "--rows",
        num_files,
        "--folder",
        folder,
    ]
    made = subprocess.run(
        [*map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    )
    pictures = Path(made.stdout.strip())
    packed = folder / f"archives-{num_files}"
    packed.mkdir(exist_ok=True)
    for name, mode in (("pictures.tar", "w"), ("pictures.tar.gz", "w:gz")):
        with tarfile.open(packed / name, mode) as tar:
            tar.add(pictures, "pictures")
    for name, method in (("stored.zip", 0), ("deflated.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(packed / name, "w", method) as file:
            for path in sorted(pictures.rglob("*.*")):
                file.write(path, path.relative_to(pictures))
    return [pictures, *sorted(packed.iterdir())]


def main(argv: list[str]) -> int:
    """Run all, one after the other, and print the ratios."""
    args = parse_arguments(argv)
    python = args.python or args.recordmill.with_name("python")
    inputs = make_inputs(python, args.files, args.folder)
    seconds: dict[str, list[float]] = {}
    output = args.folder / "archives-out"
    for _ in range(args.repeat):
        for given in inputs:
            shutil.rmtree(output, ignore_errors=True)
            words = [args.recordmill, "convert", "images", given, output]
            log = args.folder / "last-run.log"
            run = run_measured([*map(str, words)], log=log)
            if run.exit_code != 0:
                raise SystemExit(f"{given}: exit status {run.exit_code}, see {log}")
            seconds.setdefault(given.name, []).append(run.seconds)
    plain = median(seconds[inputs[0].name])
    for name, taken in seconds.items():
        print(
            f"{name:16} {median(taken):6.2f} s  {median(taken) / plain:5.2f}x the folder"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
