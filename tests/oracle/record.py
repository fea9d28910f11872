"""Records what a checkout does with some 1,000 inputs and commands.

    .venv/bin/python tests/oracle/record.py --checkout . --out new.json [--only csv]

recordmill is imported once; each command then runs in a fork of this process. Beside exit
status and messages the recording has what was published: bytes as SHA-256, short texts as
they are. What differs from run to run is masked: see MASKS, VOLATILE and SKIPPED.
"""

from __future__ import annotations

import argparse
import functools
import gc
import gzip
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 120  # for a command
TEXT = 6_000  # characters of a text that are recorded beside its checksum
# Keys of JSON files whose values differ from run to run, or with the fingerprint.
VOLATILE = {"fingerprint", "seconds", "started_unix", "stages", "python", "recordmill"}
VOLATILE |= {"beam", "timestamp", "time", "published_unix", "free"}
# Files of a dataset that hold times or nothing that users read.
SKIPPED = "inventory"
MASKS: list[tuple[str, str]] = [
    (
        rf'"({"|".join(sorted(VOLATILE))})": (\{{[^}}]*\}}|"[^"]*"|[\d.e+-]+)',
        r'"\1": "#"',
    ),
    (r'stages="(?:[^"\\]|\\.)*"|\bseconds=\S+', "<took>"),
    (r"\b[0-9a-f]{32}\b", "<fingerprint>"),
    (r"(?<=[.-])[0-9a-f]{8}(?=[.-])", "<fp>"),
    (r"\d[\d,.]* (rows|records|[kMG]?i?B)/s", "# /s"),
    (r"\d[\d,.]* (s|ms|min|h)\b", "# s"),
    (r"\b\d[\d.]* [kMGT]i?B (of memory )?(are )?free", "# free"),
    (rf"{time.strftime('%Y-%m-%d')}[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?", "<time>"),
    (r"\b[0-9a-f]{16}\b", "<run>"),
    (r"\brecordmill(\.\w+)+\.(?=\w+Error)", ""),
    (r"(?<=pid )\d+|(?<=process )\d+", "#"),
    (r"0x[0-9a-f]{6,}", "<address>"),
    (r"\.recordmill-stdin-\w+", "<stdin>"),
    (r'\["(inventory\S*|run\S*\.json)",\d+,""\]', "<of another run>"),
    (r"(?m)^Traceback[^\n]*\n(?:[ \t][^\n]*\n)*", "Traceback\n"),
    (r"(?m)^(recordmill_\w*(?:seconds|timestamp)\w*(?:\{[^}]*\})?) .*$", r"\1 #"),
]


def masked(text: str, folder: Path | None = None) -> str:
    """Returns a text without what differs from run to run; masking twice is the same."""
    if folder:
        text = text.replace(str(folder), "$CASE").replace(
            str(folder.parents[1]), "$ROOT"
        )
    for pattern, by in MASKS:
        text = re.sub(pattern, by, text)
    return text


def plain(value: Any) -> Any:
    """Returns a JSON value without what differs from run to run."""
    if isinstance(value, dict):
        files = value.get("files")
        if isinstance(files, dict) and "dataset_info.json" in files:
            value["files"] = dict.fromkeys(files, "#")  # hashed themselves
        return {k: "#" if k in VOLATILE else plain(v) for k, v in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def describe(path: Path, folder: Path) -> dict[str, Any]:
    """Returns what is recorded of a published file."""
    data = path.read_bytes()
    if path.suffix == ".html":
        return {"page": data[:15].decode()}
    if path.name.endswith(".jsonl.gz"):
        with suppress(OSError):
            data = gzip.decompress(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if path.suffix == ".json":
        with suppress(ValueError):
            text = json.dumps(plain(json.loads(text)), indent=1, ensure_ascii=False)
    text = masked(text, folder)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (
        {"sha256": digest, "text": text[:TEXT]}
        if "tfrecord" not in path.name
        else {"bytes": len(data), "sha256": digest}
    )


def published(folder: Path) -> dict[str, Any]:
    """Returns what is recorded of all files that a case left beside its inputs."""
    found: dict[str, Any] = {}
    inner = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0] in ("in", ".captured") or not path.is_file():
            continue
        if ".recordmill" in parts:
            inner += 1
        elif not path.name.startswith(SKIPPED):
            name = masked("/".join(parts), folder)
            found[name] = describe(path, folder)
    if inner:
        found[".recordmill"] = {"files left": "some"}
    return found


def forked(work: Callable[[], None], seconds: float = SECONDS) -> int:
    """Runs a function in a fork, and returns its exit status; -9 if it took too long."""
    child = os.fork()
    if not child:
        status = 70
        try:
            work()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def die_at(step: int) -> None:
    """Ends this process at a change of the file system, as if it had been killed."""
    steps = iter(range(step))

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def change_or_die(*args: Any, **options: Any) -> Any:
            if next(steps, None) is None:
                os._exit(137)
            return change(*args, **options)

        return change_or_die

    for name in ("replace", "rename", "unlink", "mkdir", "link"):
        setattr(os, name, counted(getattr(os, name)))


def run_command(
    main: Callable[[], None], command: dict[str, Any], folder: Path
) -> None:
    """Runs one command of a case; ends the process."""
    os.chdir(folder)
    streams = folder / ".captured"
    given = os.open(os.devnull, os.O_RDONLY)
    if "stdin" in command:
        given = os.open(command["stdin"], os.O_RDONLY)
    os.dup2(given, 0)
    for number, name in ((1, "out"), (2, "err")):
        to = os.open(streams / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(to, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    if "die_at" in command:
        die_at(command["die_at"])
    if "python" in command:
        exec(compile(command["python"], "<case>", "exec"), {"__name__": "case"})
    else:
        sys.argv = ["recordmill", *command["args"]]
        main()


def act(action: list[str], folder: Path) -> None:
    """Does what lies between two commands: cp, rm, append TEXT, damage."""
    verb, path, *rest = action
    target = folder / path
    if verb == "cp":
        (shutil.copytree if target.is_dir() else shutil.copyfile)(
            target, folder / rest[0]
        )
    elif verb == "rm":
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    elif verb == "write":
        target.write_text(rest[0])
    elif verb == "damage":
        for one in sorted(folder.glob(path))[:1]:
            data = bytearray(one.read_bytes())
            data[len(data) // 2] ^= 0x55
            one.write_bytes(data)


def run_case(main: Callable[[], None], case: dict[str, Any], folder: Path) -> None:
    """Runs all commands of a case in its folder, and writes down what they did."""
    (folder / ".captured").mkdir()
    runs = []
    for command in case["commands"]:
        if "do" in command:
            act(command["do"], folder)
            continue
        status = forked(lambda command=command: run_command(main, command, folder))  # type: ignore[misc]
        run: dict[str, Any] = {"status": status}
        for name in ("out", "err"):
            text = (
                (folder / ".captured" / name)
                .read_bytes()
                .decode(errors="backslashreplace")
            )
            run[name] = masked(text, folder)[:20_000]
        if "die_at" in command:
            run = {"status": "killed or done"}
        elif command.get("quiet"):
            run = {"status": status}
        runs.append(run)
    result = {"runs": runs, "files": published(folder)}
    (folder / ".captured" / "result.json").write_text(json.dumps(result))


def entry_point(checkout: Path) -> Callable[[], None]:
    """Returns the function behind the command `recordmill` of a checkout."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["recordmill"].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def warm_up(main: Callable[[], None], root: Path) -> None:
    """Imports what commands import, without running one in this process."""
    from cases import WARM_UP

    names: dict[str, None] = {}
    for number, line in enumerate(WARM_UP):
        args = line.split()
        folder, report = root / "warm" / str(number), root / f"warm-{number}"
        (folder / ".captured").mkdir(parents=True)

        def work(
            args: list[str] = args, folder: Path = folder, report: Path = report
        ) -> None:
            end = os._exit

            def tell(status: int) -> None:
                report.write_text("\n".join(list(sys.modules)))
                end(status)

            os._exit = tell  # type: ignore[assignment]
            run_command(main, {"args": args}, folder)

        if status := forked(work):
            error = (folder / ".captured" / "err").read_text()
            sys.exit(f"{args} ended with {status}:\n{error}")
        names |= dict.fromkeys(report.read_text().split("\n"))
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with suppress(Exception):
                importlib.import_module(name)


def find_renames(checkout: Path, root: Path) -> dict[str, str]:
    """Returns the lines of renames.txt whose old name the checkout does not know."""
    known = [path.read_text() for path in checkout.glob("schemas/**/*.schema.json")]
    known += [path.read_text() for path in root.glob("warm/*/.captured/out")]
    words = set(re.findall(r"[\w-]+", "\n".join(known)))
    lines = (HERE / "renames.txt").read_text().splitlines()
    pairs = [line.split(" => ") for line in lines if " => " in line]
    return {old: new for old, new in pairs if old not in words and new in words}


def renamed(case: dict[str, Any], folder: Path, renames: dict[str, str]) -> None:
    """Writes the names that the checkout knows into commands and YAML files of a case."""
    for command in case["commands"]:
        if "args" in command:
            command["args"] = [renames.get(each, each) for each in command["args"]]
    for path in folder.rglob("*.yaml"):
        text = path.read_text()
        for old, new in renames.items():
            old, new = (
                name.removeprefix("--").replace("-", "_") for name in (old, new)
            )
            text = re.sub(rf"\b{old}(?=:)", new, text)
        path.write_text(text)


def make_inputs(root: Path, only: Iterable[str]) -> None:
    """Writes the inputs of all cases, and the list of them: in a process of its own."""
    from cases import all_cases

    listed = []
    for case in all_cases():
        name, commands = case["name"], case["commands"]
        if only and not any(name.startswith(start) for start in only):
            continue
        digest = hashlib.sha256(json.dumps(commands).encode())
        (root / name).mkdir(parents=True)
        for path, data in case["files"].items():
            target = root / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            digest.update(path.encode() + b"\0" + data)
        digested = digest.hexdigest()[:16]
        listed.append({"name": name, "commands": commands, "digest": digested})
    (root / "cases.json").write_text(json.dumps(listed))


def record(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    checkout = options.checkout.resolve()
    for name in ("samples", "golden"):
        found = (HERE.parent / name, HERE.parent / "data" / name)
        shutil.copytree(next(each for each in found if each.is_dir()), root / name)
    sys.path.insert(0, str(HERE))
    if status := forked(lambda: make_inputs(root, options.only), 600):
        sys.exit(f"the inputs were not made: {status}")
    main = entry_point(checkout)
    os.fsync = lambda _: None
    importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)  # type: ignore[assignment]
    where = str(importlib.import_module("recordmill").__file__)
    if not where.startswith(f"{checkout}/"):
        sys.exit(
            f"recordmill is imported from {where}: use {checkout}/.venv/bin/python"
        )
    warm_up(main, root)
    gc.collect()
    gc.freeze()
    cases = json.loads((root / "cases.json").read_text())
    renames = find_renames(checkout, root)
    waiting, running, done = list(reversed(cases)), dict[int, str](), 0
    while waiting or running:
        while waiting and len(running) < options.workers:
            case = waiting.pop()
            child = os.fork()
            if not child:
                with suppress(BaseException):
                    folder = root / case["name"]
                    renamed(case, folder, renames)
                    run_case(main, case, folder)
                os._exit(0)
            running[child] = case["name"]
        running.pop(os.wait()[0], None)
        done += 1
        if done % 50 == 0:
            print(f"{done} of {len(cases)}", file=sys.stderr, flush=True)
    results = {}
    for case in cases:
        path = root / case["name"] / ".captured" / "result.json"
        lost: dict[str, Any] = {"runs": [], "files": {}}
        result = json.loads(path.read_text()) if path.exists() else lost
        results[case["name"]] = {
            key: case[key] for key in ("digest", "commands")
        } | result
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkout", type=Path, default=Path())
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", action="append", default=[], help="cases that begin so"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--keep", action="store_true", help="keep the folders of the cases"
    )
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("RECORDMILL")]:
        del os.environ[name]
    os.environ |= {
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "TZ": "UTC"}
    start = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="oracle-", dir="/tmp"))
    try:
        results = record(options, root)
    finally:
        if options.keep:
            print(f"the cases are in {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)
    options.out.write_text(json.dumps(results, indent=1))
    lost = [name for name, result in results.items() if not result["runs"]]
    took = f"{time.monotonic() - start:.0f} s"
    print(f"{len(results)} cases in {took}; without a result: {lost or 'none'}")


if __name__ == "__main__":
    main()
