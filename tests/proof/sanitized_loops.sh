#!/bin/sh
# Runs the tests of the native extension where each read and write is watched: outside of its
# buffer, of memory that was freed, or of numbers that overflow. By gcc's sanitizers.
#
#     sh tests/proof/sanitized_loops.sh                                 # a minute or two
#     RECORDMILL_FUZZ_EXAMPLES=20000 sh tests/proof/sanitized_loops.sh  # twenty
#
# In a copy of HEAD in build/sanitized. Fails if a test does, or anything was found.
name=sanitized
. "$(dirname "$0")/copy_of_loops.sh"
gcc -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
    -shared -fPIC "-I$include" ./*.c -o _loops.abi3.so
cd "$copy"
# Python keeps objects that it does not free at its end, and memory in pools of its own.
# shellcheck disable=SC2086  # several files
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc \
    ARROW_DEFAULT_MEMORY_POOL=system PYTHONPATH=$copy/src \
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    "$python" -m pytest -q -n0 -s -p no:cacheprovider $tests
rm -rf "$copy"
