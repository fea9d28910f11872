"""A hub of datasets on loopback: what huggingface_hub asks of one to list and read files.

It stands in for the real one, which cannot be run here; its answers have the keys that the
client of huggingface_hub reads (HfApi.list_repo_tree, get_paths_info, dataset_info).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0" * 39 + "1"


def _entry(root: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        return {"type": "directory", "oid": "d", "size": 0, "path": name}
    data = path.read_bytes()
    blob = b"blob %d\0" % len(data)
    oid = hashlib.sha1(blob + data, usedforsecurity=False).hexdigest()
    return {"type": "file", "oid": oid, "size": len(data), "path": name}


@contextmanager
def hub(
    repositories: dict[str, Path],
    token: str = "",
    refusal: tuple[int, dict[str, str]] = (401, {}),
) -> Iterator[str]:
    """Serves folders as datasets, by owner/name; yields the address.

    Requests without the token are refused with this status and these headers.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, data: bytes, **headers: str) -> None:
            self.send_response(status)
            headers.setdefault("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def answer_json(self, found: object) -> None:
            self.answer(
                200, json.dumps(found).encode(), Content_Type="application/json"
            )

        def missing(self, code: str) -> None:
            self.answer(404, b"{}", X_Error_Code=code, Content_Type="application/json")

        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if token and self.headers["Authorization"] != f"Bearer {token}":
                status, headers = refusal
                self.answer(status, b"{}", Connection="close", **headers)
                return False
            return True

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            found = re.fullmatch(r"/api/datasets/(.+?/.+?)/paths-info/[^/]+", self.path)
            root = repositories.get(found[1]) if found else None
            if root is None:
                return self.missing("RepoNotFound")
            try:
                names = json.loads(sent)["paths"]
            except ValueError:
                names = parse_qs(sent.decode())["paths"]
            paths = [root / name for name in names]
            return self.answer_json(
                [_entry(root, each) for each in paths if each.exists()]
            )

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path)
            if read := re.fullmatch(r"/datasets/(.+?/.+?)/resolve/[^/]+/(.+)", path):
                return self.file(repositories.get(read[1]), read[2])
            asked = re.fullmatch(
                r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree)/[^/]+(?:/(.*))?)?",
                path,
            )
            root = repositories.get(asked[1]) if asked else None
            if asked is None or root is None:
                return self.missing("RepoNotFound")
            if asked[2] != "tree":
                name = {"id": asked[1], "sha": COMMIT, "private": False}
                return self.answer_json(name | {"tags": [], "downloads": 0, "likes": 0})
            folder = root / (asked[3] or "")
            if not folder.is_dir():
                return self.missing("EntryNotFound")
            deep = "true" in parse_qs(url.query).get("recursive", [""])[0].lower()
            found = sorted(folder.rglob("*") if deep else folder.iterdir())
            return self.answer_json([_entry(root, each) for each in found])

        def file(self, root: Path | None, name: str) -> None:
            if root is None or not (root / name).is_file():
                return self.missing("EntryNotFound")
            data, tag = (root / name).read_bytes(), _entry(root, root / name)["oid"]
            size, status, more = len(data), 200, {}
            if part := re.fullmatch(
                r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")
            ):
                start, stop = int(part[1]), min(int(part[2] or size - 1), size - 1)
                data, status = data[start : stop + 1], 206
                more["Content_Range"] = f"bytes {start}-{stop}/{size}"
            more |= {"ETag": f'"{tag}"', "X_Repo_Commit": COMMIT}
            return self.answer(status, data, Accept_Ranges="bytes", **more)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
