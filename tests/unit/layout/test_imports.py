"""The rooms of the house: which folder may import which, and what files are called.

ROOMS lists every folder from the ground up. A file may import from its own folder and
from folders that stand above its own line here, never the other way, so there can be no
circle. A folder that is missing here fails the test, as does one that is gone.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = "recordmill"
ROOMS = (
    "schemas",  # errors, text, sizes, ranges: the ground
    "schemas/proto",
    "transforms/native",
    "transforms",  # arrow and tfrecord
    "transforms/images",
    "transforms/audio",
    "transforms/encode",
    "transforms/storage",
    "transforms/cast",
    "transforms/decode",
    "transforms/exchange",
    "transforms/sources",
    "transforms/sources/csv",
    "transforms/sources/arrays",
    "transforms/sources/images",
    "transforms/sources/audio",
    "transforms/sources/text_files",
    "transforms/sources/tfrecord",
    "transforms/sources/webdataset",
    "transforms/dataset",
    "transforms/tasks",
    "transforms/commit",
    "transforms/rows",
    "transforms/statistics",
    "beam_jobs",
    "beam_jobs/runners",
    "beam_jobs/pipelines",
    "beam_jobs/service",
    "beam_jobs/report",
    "beam_jobs/cli",
    "src/recordmill",  # the package's public names
)


def product_files() -> list[Path]:
    return [
        path
        for top in ("schemas", "transforms", "beam_jobs", "src")
        for path in sorted((ROOT / top).rglob("*.py"))
    ]


def room_of(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


def imported_files(path: Path) -> set[Path]:
    """The project's files that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            modules = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        found |= {file for module in modules if (file := file_of(module))}
    return found


def file_of(module: str) -> Path | None:
    """The file of a module, or of the module that a name is imported from."""
    package, *steps = module.split(".")
    if package != PACKAGE:
        return None
    if not steps or steps[0] not in ("schemas", "transforms", "beam_jobs"):
        return ROOT / "src/recordmill/__init__.py"
    for end in (len(steps), len(steps) - 1):
        base = ROOT.joinpath(*steps[:end])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.exists():
                return file
    raise AssertionError(f"{module} is nowhere")


def test_no_two_files_of_tests_have_one_name() -> None:
    """Else pytest, which imports them by that name, refuses the second one."""
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert names == sorted(set(names))


def test_every_room_is_listed() -> None:
    assert {room_of(path) for path in product_files()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room: str) -> None:
    height = {name: index for index, name in enumerate(ROOMS)}
    wrong = [
        f"{path.relative_to(ROOT)} imports {target.relative_to(ROOT)}"
        for path in product_files()
        if room_of(path) == room
        for target in imported_files(path)
        if height[room_of(target)] > height[room]
    ]
    assert wrong == []


def circles() -> list[frozenset[str]]:
    """Returns the sets of files that import each other (Tarjan's strongly connected
    components), with imports inside functions and under TYPE_CHECKING.
    """
    graph = {path: imported_files(path) - {path} for path in product_files()}
    index, low = dict[Path, int](), dict[Path, int]()
    stack: list[Path] = []
    found: list[frozenset[str]] = []

    def visit(path: Path) -> None:
        index[path] = low[path] = len(index)
        stack.append(path)
        for target in graph.get(path, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[path] = min(low[path], low[target])
        if low[path] == index[path]:
            start = stack.index(path)
            members, stack[start:] = stack[start:], []
            if len(members) > 1:
                found.append(
                    frozenset(str(member.relative_to(ROOT)) for member in members)
                )

    for path in graph:
        if path not in index:
            visit(path)
    return found


def test_no_files_import_each_other() -> None:
    assert [sorted(circle) for circle in circles()] == []


def test_a_circle_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test above can fail."""
    texts = {"a": "recordmill.schemas.b", "b": "recordmill.schemas.a", "c": "os"}
    (tmp_path / "schemas").mkdir()
    for name, module in texts.items():
        (tmp_path / f"schemas/{name}.py").write_text(f"import {module}\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert circles() == [{"schemas/a.py", "schemas/b.py"}]


def test_nothing_is_imported_by_its_folder_name() -> None:
    """`import transforms` would find a user's own module."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in product_files()
        for node in ast.walk(ast.parse(path.read_text()))
        for module in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [name.name for name in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if module.partition(".")[0] in ("schemas", "transforms", "beam_jobs")
    ]
    assert wrong == []
