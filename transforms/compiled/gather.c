/* Reads many small parts of a file: in Python each takes as long as a thousand bytes. */

#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <unistd.h>

#include "loops.h"

int64_t gather_parts(
    int descriptor, const int64_t *offsets, const int64_t *starts,
    const int64_t *lengths, int64_t count, uint8_t *target)
{
    for (int64_t each = 0; each < count; each++) {
        uint8_t *into = target + starts[each];
        off_t from = (off_t)offsets[each];
        size_t left = (size_t)lengths[each];
        while (left > 0) {
            ssize_t got = pread(descriptor, into, left, from);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return each;
            into += got;
            from += got;
            left -= (size_t)got;
        }
    }
    return -1;
}
