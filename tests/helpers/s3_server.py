"""Moto's S3 server, whose puts are one step as those of S3 are: `python s3_server.py`.

Moto compares If-Match and puts afterwards, so another put can come in between. It also
lists its own folders for each request, a quarter of its processor time: here once.
"""

from __future__ import annotations

import threading

from moto import backends
from moto.s3.responses import S3Response
from moto.server import main

_put = S3Response.put_object
_one_at_a_time = threading.Lock()


def put_object(response: S3Response) -> object:
    with _one_at_a_time:
        return _put(response)


S3Response.put_object = put_object
_services = frozenset(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: _services

if __name__ == "__main__":
    main()
