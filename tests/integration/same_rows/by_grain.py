"""Read datasets with Grain: a data source of rows by number, with worker processes.

python tests/integration/same_rows/by_grain.py CASES
"""

from collections.abc import Iterator

import grain
from row_digest import Json, Row, cases, told, unbatched

from recordmill import open_dataset


def by_loader(case: Json) -> Iterator[Row]:
    """Yield rows that two worker processes read; the source is pickled for them."""
    data = open_dataset(case["output"])
    sampler = grain.samplers.IndexSampler(len(data), shuffle=True, seed=1, num_epochs=1)
    return iter(grain.DataLoader(data_source=data, sampler=sampler, worker_count=2))


def main() -> None:
    """Read each dataset in four ways."""
    for case in cases():
        data = open_dataset(case["output"])
        source = grain.MapDataset.source(data)
        told(case, "grain", lambda: source.shuffle(seed=1))  # noqa: B023
        told(case, "grain, threads", lambda: iter(source.to_iter_dataset()))  # noqa: B023
        if case["batch"]:  # not of all: workers take seconds to start
            told(case, "grain, 2 workers", lambda: by_loader(case))  # noqa: B023
            batches = source.batch(case["batch"])
            told(case, "grain, batches", lambda: unbatched(batches))  # noqa: B023


if __name__ == "__main__":
    main()
