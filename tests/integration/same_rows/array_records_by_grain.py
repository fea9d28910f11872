"""Print a digest of each record that Grain finds in ArrayRecord files, in their order.

python tests/integration/same_rows/array_records_by_grain.py FILE...
"""

import hashlib
import sys

import grain

source = grain.sources.ArrayRecordDataSource(sys.argv[1:])
shuffled = grain.MapDataset.source(source).shuffle(seed=1)
assert sorted(shuffled) == sorted(source[n] for n in range(len(source)))
for index in range(len(source)):
    print(hashlib.sha256(source[index]).hexdigest())
