"""deploy/systemd under systemd's own tools. Nothing is started: that takes root."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from job_tools import COMMAND
from manifests import DEPLOY, load, our_arguments, parse

from recordmill.schemas.errors import EXIT_STATUS, PERMANENT_KINDS

UNITS = DEPLOY / "systemd"
SERVICE = UNITS / "recordmill@.service"
TIMER = UNITS / "recordmill@.timer"
INSTALLED = "/opt/recordmill/bin/recordmill"


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """systemd-analyze; an error if it is not there (Debian: package systemd)."""
    command = ["systemd-analyze", *map(str, arguments)]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_LOG_COLOR": "0"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )


def instance(folder: Path, service: str) -> list[Path]:
    """Both units as an instance of theirs, with the command where it is here."""
    assert INSTALLED in service
    made = []
    for unit, text in ((SERVICE, service), (TIMER, TIMER.read_text())):
        path = folder / unit.name.replace("@", "@users")
        path.write_text(text.replace(INSTALLED, str(COMMAND)))
        made.append(path)
    return made


def test_units_are_valid(tmp_path: Path) -> None:
    done = analyze("verify", *instance(tmp_path, SERVICE.read_text()))
    # Of unknown keys it only warns, and ends with 0.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("NoNewPrivileges=", "NoNewPrivilege=", "'NoNewPrivilege'"),
        ("MemoryMax=4G", "MemoryMax=4X", "Invalid memory limit '4X'"),
        (INSTALLED, f"{INSTALLED}-x", "is not executable"),
    ],
)
def test_what_is_wrong_would_be_noticed(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    service = SERVICE.read_text()
    assert right in service
    done = analyze("verify", *instance(tmp_path, service.replace(right, wrong)))
    assert message in done.stdout + done.stderr


def test_its_exposure_is_low(tmp_path: Path) -> None:
    service, _ = instance(tmp_path, SERVICE.read_text())
    done = analyze("security", "--offline=true", "--threshold=20", service)
    assert done.returncode == 0, done.stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) < 2


def settings(unit: Path, section: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser[section]


def test_the_service_is_no_roots_and_may_write_little() -> None:
    service = settings(SERVICE, "Service")
    assert service["User"] not in ("", "root", "0")
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    # By /proc/sys/kernel/random/boot_id a run knows a dead one's lease at once.
    assert "ProcSubset" not in service
    # What it is given to write is what the job on show writes.
    output = load(UNITS / "users.yaml").options.output
    writable = [path.lstrip("-") for path in service["ReadWritePaths"].split()]
    assert any(Path(path) in Path(output).parents for path in writable)
    scratch = "XDG_CACHE_HOME=/var/cache/recordmill"
    assert scratch in shlex.split(service["Environment"])
    assert service["CacheDirectory"] == "recordmill"


def test_the_command_parses() -> None:
    service = settings(SERVICE, "Service")
    words = shlex.split(service["ExecStart"].replace("%i", "users"))
    arguments = our_arguments(words)
    assert words[0] == INSTALLED
    assert arguments is not None
    context = parse(arguments)
    assert context.params["job_file"] == "/etc/recordmill/users.yaml"
    assert context.params["log_format"] == "json"
    unit = settings(SERVICE, "Unit")
    condition = unit["ConditionPathExists"].replace("%i", "users")
    assert condition == context.params["job_file"]
    assert int(unit["StartLimitBurst"]) == 3
    # What a person has to mend is not tried again.
    never = [EXIT_STATUS[kind] for kind in PERMANENT_KINDS]
    assert service["RestartPreventExitStatus"] == " ".join(map(str, never))


def test_the_timer_makes_up_for_what_it_missed() -> None:
    timer = settings(TIMER, "Timer")
    assert timer["Persistent"] == "true"
    done = analyze("calendar", "--iterations=2", timer["OnCalendar"])
    assert done.returncode == 0, done.stderr
    assert "Normalized form: *-*-* 02:15:00 UTC" in done.stdout
    assert analyze("calendar", "every night").returncode != 0
    assert settings(TIMER, "Install")["WantedBy"] == "timers.target"


def test_the_documentation_is_a_file_that_the_page_copies() -> None:
    """`systemctl status` names it, so it has to be there."""
    (uri,) = settings(SERVICE, "Unit")["Documentation"].split()
    path = Path(uri.removeprefix("file://"))
    assert path.is_absolute()
    page = (UNITS / "README.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("install -D ")]
    words = shlex.split(line)
    assert words[words.index("--target-directory") + 1] == str(path.parent)
    copied = {file.name for file in (DEPLOY.parent).glob(words[-1])}
    assert path.name in copied


def test_the_page_copies_the_files_that_are_there() -> None:
    page = (UNITS / "README.md").read_text()
    (line,) = [
        line for line in page.splitlines() if "recordmill@.service deploy" in line
    ]
    *sources, target = shlex.split(line)[1:]
    assert [Path(source).name for source in sources] == [SERVICE.name, TIMER.name]
    assert target == "/etc/systemd/system/"
    assert shutil.which("systemd-analyze"), "Debian: apt-get install systemd"
