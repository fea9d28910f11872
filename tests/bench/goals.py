"""The peers of each input, and what recordmill promises beside them."""

import dataclasses

MEGABYTE = 1_000_000
MAX_PEAK_BYTES = 700 * MEGABYTE
# Records of CIFAR-10 in 0.15, 1.5 and 6 GB of input.
MEMORY_ROWS = (50_000, 500_000, 1_950_000)
MAX_STARTUP_RATIO = 2.5
MAX_HELP_SECONDS = 0.3
STARTUP_REPEAT = 7


@dataclasses.dataclass(frozen=True)
class Peer:
    """One peer script on one input, and the least ratio of its seconds to ours."""

    name: str
    script: str
    options: tuple[str, ...] = ()
    goal: float | None = None
    # Held in memory by the peer per row (bytes, rounded up from small runs).
    row_memory_bytes: int = 0


PEERS = {
    "csv": (
        Peer("loop", "peer_loop.py", goal=20),
        Peer("beam", "peer_beam.py", goal=30, row_memory_bytes=8_000),
        Peer("tfx", "peer_tfx.py"),
    ),
    "cifar": (
        Peer("loop", "peer_loop.py", goal=3),
        Peer("beam", "peer_beam.py", goal=12, row_memory_bytes=25_000),
        Peer("tfds", "peer_tfds.py", goal=25),
    ),
    "images": (
        Peer("loop", "peer_loop.py", goal=2),
        # Harder than the tutorial, which decodes each image: same goal for both.
        Peer("loop-header", "peer_loop.py", ("--sizes", "header"), goal=2),
        Peer("tfds", "peer_tfds.py", goal=3),
        # Not to be beaten: at most 1.25 times its seconds.
        Peer("copy", "peer_copy.py", goal=0.8),
    ),
}
