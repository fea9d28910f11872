#!/bin/sh
# Prints how much of the compiled loops their tests run, by gcc and gcov: lines and branches.
#
#     sh tests/proof/coverage_of_loops.sh
#
# In a copy of HEAD in build/loops, where the loops are built without optimization.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
copy=$root/build/loops
python=$root/.venv/bin/python
rm -rf "$copy"
mkdir -p "$copy"
git archive HEAD | tar -x -C "$copy"
make -s -C "$copy" build/types/recordmill
cd "$copy/transforms/compiled"
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc --coverage -O0 -shared -fPIC "-I$include" ./*.c -o _loops.abi3.so
cd "$copy"
PYTHONPATH=$copy/build/types "$python" -m pytest -q -n0 -p no:cacheprovider \
    tests/unit/encode tests/unit/sources/test_csv_plain_cells.py \
    tests/unit/sources/test_plain_numbers.py tests/unit/pictures/test_structure.py \
    tests/unit/sources/test_tfrecord_frames.py tests/unit/storage/test_reading.py
cd transforms/compiled
gcov --branch-counts --branch-probabilities --object-directory . ./_loops*.gcda |
    grep -v "^No \|^$\|^Creating\|/usr/"
rm -rf "$copy"
