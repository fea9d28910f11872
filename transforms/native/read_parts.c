/* Reads many small parts of a file, or many whole files: in Python each call takes as long
   as a thousand bytes, and other threads hold the interpreter lock when it ends. */

#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loops.h"

/* Fills the target from a position of a file on. Returns 0 if the file ends before. */
static int fill(int descriptor, uint8_t *into, size_t left, off_t from)
{
    while (left > 0) {
        ssize_t got = pread(descriptor, into, left, from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        into += got;
        from += got;
        left -= (size_t)got;
    }
    return 1;
}

int64_t gather_parts(
    int descriptor, const int64_t *offsets, const int64_t *starts,
    const int64_t *lengths, int64_t count, uint8_t *target)
{
    for (int64_t each = 0; each < count; each++)
        if (!fill(
                descriptor, target + starts[each], (size_t)lengths[each],
                (off_t)offsets[each]))
            return each;
    return -1;
}

/* Returns whether a file was read completely, and has not changed since it was listed. */
static int read_file(const char *path, int64_t size, int64_t modified, uint8_t *target)
{
    struct stat now;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    int good = fill(descriptor, target, (size_t)size, 0)
        && fstat(descriptor, &now) == 0 /* after the last byte was read */
        && now.st_size == size && (modified == ANY_TIME || modified == modified_at(&now));
    close(descriptor);
    return good;
}

int64_t read_files(
    const char *const *paths, const int64_t *sizes, const int64_t *modified,
    int64_t count, uint8_t *const *targets)
{
    for (int64_t each = 0; each < count; each++)
        if (!read_file(paths[each], sizes[each], modified[each], targets[each]))
            return each;
    return count;
}
