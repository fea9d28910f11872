# To be sourced, with `name` set: copies HEAD to build/$name, where the loops are to be built,
# and tells which tests are theirs. Leaves the shell in the folder of the loops.
set -eu
cd "$(dirname "$0")/../.."
copy=$PWD/build/$name
python=$PWD/.venv/bin/python
rm -rf "$copy"
mkdir -p "$copy"
git archive HEAD | tar -x -C "$copy"
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
tests="tests/unit/encode tests/unit/sources/test_csv_plain_cells.py
    tests/unit/sources/test_plain_numbers.py tests/unit/sources/test_plain_objects.py tests/unit/images/test_header.py
    tests/unit/sources/test_tfrecord_frames.py tests/unit/storage/test_reading.py
    tests/unit/storage/test_file_status.py tests/unit/storage/test_read_files.py
    tests/unit/exchange/test_held_values.py"
cd "$copy/transforms/native"
