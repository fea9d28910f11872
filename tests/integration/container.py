"""Builds the image without a daemon, and runs programs in it as a container does.

buildah (storage driver vfs, isolation chroot) builds it. A program then gets a mount
namespace of its own: the image's root read-only, /tmp as the one place to write to, and
the user, the variables and the entry point that the image names.

The bases of the Dockerfile are large and lie at registries. Stand-ins with the same
things at the same places take their part: a Debian with its Python 3.11, Beam's boot
program as Go builds it, and nothing for the launcher of Flex Templates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store_servers import TOOLS, tool

ROOT = Path(__file__).parents[2]
BASE = TOOLS / "containers" / "base.tar"
# What Debian calls otherwise than the image of Python does, or forbids.
AS_PYTHONS_IMAGE = (
    "ln -sf python3 {0}/usr/bin/python; rm -f {0}/usr/lib/python3*/EXTERNALLY-MANAGED"
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As container engines do: devices, and where localhost is, are the machine's. Nothing
# else of it can be seen, but the folders that are given.
RUN = """
set -e
root=$1 folder=$2 user=$3 workdir=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t proc none "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
for file in hosts resolv.conf; do mount --bind "/etc/$file" "$root/etc/$file"; done
mount --bind "$folder" "$root/data"
exec chroot --userspec="$user" "$root" env -i "$@"
"""


# An interface is down until somebody sets it up (SIOCSIFFLAGS: UP, RUNNING).
LOOPBACK = """
import fcntl, socket, struct, time
flags = struct.pack("16sh14x", b"lo", 1 | 64)
fcntl.ioctl(socket.socket(), 0x8914, flags)
print("up", flush=True)
time.sleep(1e6)
"""


@dataclass(frozen=True)
class Network:
    """A network with nothing but a loopback, so that all ports are free.

    Attributes:
      pid: of a process that is in it.
    """

    pid: int

    def command(self, words: Sequence[str]) -> list[str]:
        """What runs a program in it."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    def listens(self, port: int) -> bool:
        """Tells whether somebody listens on a port, of whatever address."""
        files = [Path(f"/proc/{self.pid}/net/{name}") for name in ("tcp", "tcp6")]
        sockets = [line.split() for file in files for line in file.open()]
        return any(f[1].endswith(f":{port:04X}") and f[3] == "0A" for f in sockets)


@contextmanager
def own_network() -> Iterator[Network]:
    command = ["unshare", "--net", sys.executable, "-c", LOOPBACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield Network(process.pid)
        finally:
            process.kill()


class Builder:
    """The images and containers in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def buildah(self, *words: str | Path) -> str:
        places = ["--storage-driver=vfs", f"--root={self._folder / 'store'}"]
        places.append(f"--runroot={self._folder / 'run'}")
        done = subprocess.run(
            ["buildah", *places, *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
            check=False,
        )
        assert done.returncode == 0, (
            f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
        return done.stdout.strip()

    def make_bases(self) -> dict[str, str]:
        """Makes what stands for the bases; returns the build arguments.

        None of them has a compiler: then the image has no the native extension.
        """
        launcher = self._folder / "launcher"
        launcher.write_text("#!/bin/sh\n")
        boot = tool("beam-boot-*/container")
        python = self._base("python", BASE, "/")
        return {
            "PYTHON": python,
            "COMPILER": python,
            "BEAM": self._base("beam", boot, "/opt/apache/beam/boot"),
            "LAUNCHER": self._base(
                "launcher", launcher, "/opt/google/dataflow/python_template_launcher"
            ),
        }

    def _base(self, name: str, source: str | Path, target: str) -> str:
        container = self.buildah("from", "scratch")
        self.buildah("add", container, source, target)
        if name == "python":
            root = self.buildah("mount", container)
            subprocess.run(["sh", "-c", AS_PYTHONS_IMAGE.format(root)], check=True)
            self.buildah("config", "--env", f"PATH={PATH}", container)
        image = f"localhost/{name}:stand-in"
        self.buildah("commit", "--rm", container, image)
        return image

    def build(self) -> Image:
        """Builds deploy/Dockerfile."""
        bases = self.make_bases()
        arguments = [f"--build-arg={name}={image}" for name, image in bases.items()]
        # A network may have certificates of its own, which this machine knows.
        certificates = "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"
        name = "localhost/recordmill:test"
        file = "--file=deploy/Dockerfile"
        options = [*arguments, certificates, "--pull=never", file, f"--tag={name}"]
        self.buildah("build", *options, ".")
        about = json.loads(self.buildah("inspect", "--type", "image", name))
        container = self.buildah("from", "--pull=never", name)
        root = Path(self.buildah("mount", container))
        for folder in ("data", "proc", "dev"):
            (root / folder).mkdir(exist_ok=True)
        for file in ("hosts", "resolv.conf"):
            (root / "etc" / file).touch()
        return Image(root, about["OCIv1"]["config"])


@dataclass(frozen=True)
class Image:
    """An image that was built.

    Attributes:
      root: its files.
      config: what it says of how it is run.
    """

    root: Path
    config: dict[str, Any]

    def command(self, folder: Path, words: Sequence[str]) -> list[str]:
        """What runs a program in it.

        Args:
          folder: of this machine; it is /data inside.
          words: the arguments of the entry point. A first word "recordmill" or
            "python" replaces the entry point.
        """
        own = words[0] in ("recordmill", "python")
        program = words if own else [*self.config["Entrypoint"], *words]
        inside = f'cd {self.config["WorkingDir"]} && exec "$@"'
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", RUN, "sh", str(self.root), str(folder)),
            *(self.config["User"], self.config["WorkingDir"]),
            *self.config["Env"],
            *("sh", "-c", inside, "sh", *program),
        ]

    def run(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(folder, words), capture_output=True, text=True, check=False
        )
