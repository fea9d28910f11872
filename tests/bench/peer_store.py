"""Floor: copy all objects below a URL to another one, as many requests at once as runs make.

    python tests/bench/peer_store.py INPUT OUTPUT [--join 8] [--endpoint URL]

Objects above 16 MiB are read in ranges and sent in parts, side by side. With `--join`, small
ones are read, and sent as that many large ones, as the shards of a dataset are. Nothing is
looked at, compared or kept. Needs s3fs: recordmill's own environment has it.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from s3fs import S3FileSystem

CONNECTIONS = 64
PART_BYTES = 16 << 20


async def copy(source: str, target: str, join: int, endpoint: str | None) -> None:
    """Copies all objects, some of them at once."""
    config = {"max_pool_connections": CONNECTIONS}
    system = S3FileSystem(
        endpoint_url=endpoint, config_kwargs=config, asynchronous=True
    )
    turn = asyncio.Semaphore(CONNECTIONS)

    async def call(name: str, key: str, **more: Any) -> Any:
        bucket, _, path = key.partition("/")
        async with turn:
            answer = await system._call_s3(name, Bucket=bucket, Key=path, **more)
            if "Body" in answer:
                async with answer["Body"] as body:
                    return await body.read()
            return answer

    async def put(key: str, parts: list[Any]) -> None:
        """Puts an object of what each part, a coroutine, yields."""
        if len(parts) == 1:
            await call("put_object", key, Body=await parts[0])
            return
        started = await call("create_multipart_upload", key)
        upload = {"UploadId": started["UploadId"]}

        async def send(number: int, part: Any) -> dict[str, Any]:
            body = await part
            sent = await call(
                "upload_part", key, PartNumber=number, Body=body, **upload
            )
            return {"PartNumber": number, "ETag": sent["ETag"]}

        done = await asyncio.gather(
            *(send(number, part) for number, part in enumerate(parts, 1))
        )
        await call(
            "complete_multipart_upload", key, MultipartUpload={"Parts": done}, **upload
        )

    async def read_all(keys: list[str]) -> bytes:
        return b"".join(await asyncio.gather(*(call("get_object", k) for k in keys)))

    def ranges(key: str, size: int) -> list[Any]:
        starts = range(0, max(size, 1), PART_BYTES)
        if len(starts) == 1:
            return [call("get_object", key)]
        return [
            call("get_object", key, Range=f"bytes={at}-{at + PART_BYTES - 1}")
            for at in starts
        ]

    found = await system._find(source.removeprefix("s3://"), detail=True)
    root = target.removeprefix("s3://").rstrip("/")
    if join:
        keys = [*found]
        groups = [keys[at::join] for at in range(join)]
        puts = [put(f"{root}/{i}", [read_all(each)]) for i, each in enumerate(groups)]
    else:
        puts = [
            put(f"{root}/{i}", ranges(key, info["size"]))
            for i, (key, info) in enumerate(found.items())
        ]
    await asyncio.gather(*puts)
    await (await system.set_session()).close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--join", type=int, default=0)
    parser.add_argument("--endpoint")
    given = parser.parse_args()
    asyncio.run(copy(given.source, given.target, given.join, given.endpoint))


if __name__ == "__main__":
    main()
