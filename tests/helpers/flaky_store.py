"""S3 on loopback, reached through a proxy that spoils what a test asks it to."""

from __future__ import annotations

from dataclasses import dataclass

from tcp_proxy import Proxy

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage import RemoteStore
from recordmill.transforms.storage.clouds import filesystem_of


@dataclass
class Flaky:
    """S3 reached through a proxy, and as it really is."""

    proxy: Proxy
    store: RemoteStore
    direct: RemoteStore

    @property
    def options(self) -> StorageOptions:
        return self.store.options

    def spoil_a_tenth(self) -> None:
        """Lets each tenth request fail, in one of three ways."""
        kinds = ["cut", "delay", "lost"]
        self.proxy.judge = lambda number, line: (
            kinds[number // 10 % 3] if number % 10 == 9 else ""
        )

    def open_uploads(self) -> list[object]:
        system, path = filesystem_of(self.direct.url, self.direct.options)
        found: list[object] = system.list_multipart_uploads(path.partition("/")[0])
        return found
