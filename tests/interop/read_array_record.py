"""Read shards that are ArrayRecord files, as users of TFDS and Grain would.

Run by the interop environment's python. It never imports recordmill.
"""

import hashlib
import json
import sys

import tensorflow_datasets as tfds
from array_record.python.array_record_data_source import ArrayRecordDataSource

folder, split, *files = sys.argv[1:]

# What grain.sources.ArrayRecordDataSource is made of.
source = ArrayRecordDataSource(files)
digests = [hashlib.sha256(source[index]).hexdigest() for index in range(len(source))]
print(json.dumps(digests))

builder = tfds.builder_from_directory(folder)
print(json.dumps(builder.info.file_format.value))
rows = builder.as_data_source(split=split)
print(json.dumps(len(rows)))
for index in range(len(rows)):
    row = rows[index]
    print(
        json.dumps(
            [int(row["label"]), hashlib.sha256(row["image"].tobytes()).hexdigest()]
        )
    )
