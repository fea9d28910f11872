#!/bin/sh
# Prints how much of the native extension their tests run, by gcc and gcov: lines and branches.
#
#     sh tests/proof/coverage_of_loops.sh
#
# In a copy of HEAD in build/loops, where the loops are built without optimization.
name=loops
. "$(dirname "$0")/copy_of_loops.sh"
gcc --coverage -O0 -shared -fPIC "-I$include" ./*.c -o _loops.abi3.so
cd "$copy"
# shellcheck disable=SC2086  # several files
PYTHONPATH=$copy/src "$python" -m pytest -q -n0 -p no:cacheprovider $tests
cd transforms/native
gcov --branch-counts --branch-probabilities --object-directory . ./_loops*.gcda |
    grep -v "^No \|^$\|^Creating\|/usr/"
rm -rf "$copy"
