/* Seals and checks TFRecord frames, three at a time; crc32c.c explains the number. */

#include "loops.h"

/* Returns a CRC masked as in TFRecord files. */
static uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void store(uint8_t *target, uint64_t value, int bytes)
{
    for (int each = 0; each < bytes; each++, value >>= 8)
        target[each] = (uint8_t)value;
}

static uint64_t load(const uint8_t *source, int bytes)
{
    uint64_t value = 0;
    for (int each = bytes - 1; each >= 0; each--)
        value = value << 8 | source[each];
    return value;
}

/* Computes the CRCs of the data of up to three frames; pads them with empty frames. */
static void data_crcs(
    const uint8_t *data, const int64_t *starts, const int64_t *lengths, int count,
    uint32_t crc[3])
{
    const uint8_t *part[3] = {data, data, data};
    size_t size[3] = {0, 0, 0};
    for (int each = 0; each < count; each++) {
        part[each] = data + starts[each] + HEAD_BYTES;
        size[each] = (size_t)(lengths[each] - FRAME_BYTES);
    }
    crc32c_three(part, size, crc);
}

void seal_frames(uint8_t *data, const int64_t *starts, int64_t count)
{
    for (int64_t first = 0; first < count; first += 3) {
        int some = count - first < 3 ? (int)(count - first) : 3;
        int64_t lengths[3];
        uint32_t crc[3];
        for (int each = 0; each < some; each++)
            lengths[each] = starts[first + each + 1] - starts[first + each];
        data_crcs(data, starts + first, lengths, some, crc);
        for (int each = 0; each < some; each++) {
            uint8_t *frame = data + starts[first + each];
            store(frame, (uint64_t)(lengths[each] - FRAME_BYTES), 8);
            store(frame + 8, masked(crc32c(frame, 8)), 4);
            store(frame + lengths[each] - TAIL_BYTES, masked(crc[each]), 4);
        }
    }
}

uint32_t seal_around_cells(
    uint8_t *data, const int64_t *starts, const int64_t *cuts, const int64_t *sizes,
    const uint32_t *crcs, int64_t count)
{
    uint32_t all = 0;
    for (int64_t each = 0; each < count; each++) {
        int64_t start = starts[each], cut = cuts[each], end = starts[each + 1];
        uint8_t *example = data + start + HEAD_BYTES, *tail = data + end - TAIL_BYTES;
        uint64_t size = (uint64_t)sizes[each];
        store(data + start, (uint64_t)(end - start - FRAME_BYTES) + size, 8);
        store(data + start + 8, masked(crc32c(data + start, 8)), 4);
        uint32_t crc = crc32c(example, (size_t)(data + cut - example));
        crc = crc32c_behind(crc, size) ^ crcs[each];
        store(tail, masked(crc32c_more(crc, data + cut, (size_t)(tail - data - cut))), 4);
        all = crc32c_more(all, data + start, (size_t)(cut - start));
        all = crc32c_behind(all, size) ^ crcs[each];
        all = crc32c_more(all, data + cut, (size_t)(end - cut));
    }
    return all;
}

int64_t find_damaged(
    const uint8_t *data, const int64_t *starts, const int64_t *lengths, int64_t count)
{
    for (int64_t first = 0; first < count; first += 3) {
        int some = count - first < 3 ? (int)(count - first) : 3;
        uint32_t crc[3];
        data_crcs(data, starts + first, lengths + first, some, crc);
        for (int each = 0; each < some; each++) {
            int64_t length = lengths[first + each];
            const uint8_t *frame = data + starts[first + each];
            if (load(frame, 8) != (uint64_t)(length - FRAME_BYTES)
                || load(frame + 8, 4) != masked(crc32c(frame, 8))
                || load(frame + length - TAIL_BYTES, 4) != masked(crc[each]))
                return first + each;
        }
    }
    return -1;
}

int64_t find_frames(
    const uint8_t *data, int64_t size, int64_t at, int64_t *starts, int64_t most)
{
    int64_t count = 0;
    starts[0] = at;
    while (count < most && size - at >= FRAME_BYTES) {
        uint64_t length = load(data + at, 8);
        if (length > (uint64_t)(size - at - FRAME_BYTES)
            || load(data + at + 8, 4) != masked(crc32c(data + at, 8)))
            break;
        at += (int64_t)length + FRAME_BYTES;
        starts[++count] = at;
    }
    return count;
}
