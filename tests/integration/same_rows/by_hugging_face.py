"""Read datasets with Hugging Face's datasets, as docs/reading-datasets.md shows it.

python tests/integration/same_rows/by_hugging_face.py CASES
"""

import datasets
from row_digest import cases, told

from recordmill import open_dataset

datasets.disable_progress_bars()

for case in cases():
    data = open_dataset(case["output"])
    told(case, "hugging face", lambda: datasets.Dataset.from_generator(data.stream))  # noqa: B023
    told(
        case,
        "hugging face, streamed",
        lambda: datasets.IterableDataset.from_generator(data.stream),  # noqa: B023
    )
