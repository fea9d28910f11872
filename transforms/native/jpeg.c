/* Reads the size of a JPEG that is certainly complete; in Python it takes 8 us, here 0.3.

   Python handles all other files: jpeg_header.py and structure.py describe the parts, and
   the order of the checks. The results here are equal to theirs. */

#include "loops.h"

enum { MOST_SEGMENTS = 10000, TAIL_SEARCHED = 4096 };

/* Returns whether frames begin with this marker: C0 to CF without DHT, JPG and DAC. */
static int is_frame(int marker)
{
    return (marker & 0xf0) == 0xc0 && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static int read_frame(const uint8_t *segment, int64_t size, int32_t found[3])
{
    int components = size >= 8 ? segment[7] : 0;
    found[0] = size >= 8 ? segment[3] << 8 | segment[4] : 0;
    found[1] = size >= 8 ? segment[5] << 8 | segment[6] : 0;
    found[2] = components < 3 ? components : 3;
    return found[0] > 0 && found[1] > 0 && size == 8 + 3 * components && segment[2] == 8
        && (components == 1 || components == 3 || components == 4);
}

int read_whole_jpeg(const uint8_t *data, int64_t size, int32_t found[3])
{
    if (size < 4 || data[0] != 0xff || data[1] != 0xd8)
        return 0;
    int has_frame = 0, has_scan = 0;
    int64_t at = 2;
    for (int segments = 0; segments < MOST_SEGMENTS && at + 4 <= size; segments++) {
        int marker = data[at + 1];
        if (data[at] != 0xff || marker < 0xc0 || marker == 0xff
            || (marker >= 0xd0 && marker <= 0xd9))
            return 0;
        at += 2;
        has_scan = marker == 0xda;
        if (has_scan) /* the first scan: the end marker must follow */
            break;
        int64_t segment_bytes = data[at] << 8 | data[at + 1];
        if (segment_bytes < 2 || segment_bytes > size - at)
            return 0;
        if (!has_frame && is_frame(marker)) {
            has_frame = read_frame(data + at, segment_bytes, found);
            if (!has_frame)
                return 0;
        }
        at += segment_bytes;
    }
    if (!has_frame || !has_scan)
        return 0;
    int64_t first = size - TAIL_SEARCHED > at ? size - TAIL_SEARCHED : at;
    for (int64_t end = size - 2; end >= first; end--)
        if (data[end] == 0xff && data[end + 1] == 0xd9)
            return 1;
    return 0;
}
