/* Serializes columns as tf.train.Example, in two passes: sizes first, then bytes.

   Example   0a len Features
   Features  entry*                         in the order in which the entries are given
   entry     0a len | 0a len key | 12 len Feature
   Feature   0a len BytesList | 12 len FloatList | 1a len Int64List
   BytesList (0a len bytes)*    FloatList, Int64List  0a len packed values

   The bytes equal those of transforms/encode/examples.py, which describes the format. */

#include "loops.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_DELIMITED = 0x0a, MAX_VARINT = 10 };

/* Returns the size of a varint in bytes of 7 bits. 300 has 9 bits: (9 * 9 + 64) / 64 =
   2. */
static inline int varint_size(uint64_t value)
{
    int bits = 64 - __builtin_clzll(value | 1);
    return (9 * bits + 64) / 64;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *put_header(uint8_t *at, uint8_t tag, int64_t size)
{
    *at++ = tag;
    return put_varint(at, (uint64_t)size);
}

static inline uint8_t *put_bytes(uint8_t *at, const uint8_t *data, int64_t size)
{
    memcpy(at, data, (size_t)size);
    return at + size;
}

/* Returns the size of a field with its tag and its length. */
static inline int64_t field_size(int64_t size)
{
    return 1 + varint_size((uint64_t)size) + size;
}

/* The sizes of an entry's nested messages, from inner to outer. */
struct Sizes {
    int64_t payload, list, feature, entry;
};

/* Returns whether the payload is one field of its list, not a series of fields. */
static inline int is_one_field(const struct Entry *entry, int64_t payload)
{
    if (entry->kind == BYTES_LIST)
        return entry->lists == NULL;
    return payload > 0; /* protobuf omits a packed field without values */
}

static inline struct Sizes sizes_of(const struct Entry *entry, int64_t payload)
{
    struct Sizes sizes;
    sizes.payload = payload;
    sizes.list = is_one_field(entry, payload) ? field_size(payload) : payload;
    sizes.feature = field_size(sizes.list);
    sizes.entry = field_size(entry->key_size) + field_size(sizes.feature);
    return sizes;
}

static inline int64_t bytes_size(const struct Entry *entry, int64_t value)
{
    return entry->offsets[value + 1] - entry->offsets[value];
}

static int64_t payload_size(const struct Entry *entry, int64_t row)
{
    int64_t first = row, end = row + 1, size = 0;
    if (entry->lists != NULL)
        first = entry->lists[row], end = entry->lists[row + 1];
    switch (entry->kind) {
    case FLOAT_LIST:
        return 4 * (end - first);
    case INT64_LIST:
        for (int64_t value = first; value < end; value++)
            size += varint_size((uint64_t)entry->integers[value]);
        return size;
    case BYTES_LIST:
        if (entry->lists == NULL)
            return bytes_size(entry, row);
        for (int64_t value = first; value < end; value++)
            size += field_size(bytes_size(entry, value));
        return size;
    }
    return 0;
}

static uint8_t *put_payload(uint8_t *at, const struct Entry *entry, int64_t row)
{
    int64_t first = row, end = row + 1;
    if (entry->lists != NULL)
        first = entry->lists[row], end = entry->lists[row + 1];
    switch (entry->kind) {
    case FLOAT_LIST: /* floats are little-endian in memory and on the wire */
        return put_bytes(at, (const uint8_t *)(entry->floats + first), 4 * (end - first));
    case INT64_LIST:
        for (int64_t value = first; value < end; value++)
            at = put_varint(at, (uint64_t)entry->integers[value]);
        return at;
    case BYTES_LIST:
        for (int64_t value = first; value < end; value++) {
            int64_t size = bytes_size(entry, value);
            if (entry->lists != NULL)
                at = put_header(at, LENGTH_DELIMITED, size);
            at = put_bytes(at, entry->data + entry->offsets[value], size);
        }
        return at;
    }
    return at;
}

/* Writes all bytes of an entry before its payload. */
static uint8_t *put_prefix(uint8_t *at, const struct Entry *entry, int64_t payload)
{
    struct Sizes sizes = sizes_of(entry, payload);
    at = put_header(at, 0x0a, sizes.entry);
    at = put_header(at, 0x0a, entry->key_size);
    at = put_bytes(at, entry->key, entry->key_size);
    at = put_header(at, 0x12, sizes.feature);
    at = put_header(at, (uint8_t)entry->kind, sizes.list);
    if (is_one_field(entry, payload))
        at = put_header(at, LENGTH_DELIMITED, payload);
    return at;
}

/* The prefixes of one entry for payloads of 0, 1, 2, ... bytes, created when needed: all
   rows share them. */
enum { KNOWN = 64, PREFIX_BYTES = 63, MAX_KEY = 48, MAX_ENTRIES = 1024 };
struct Prefixes {
    struct {
        uint8_t size, bytes[PREFIX_BYTES];
    } of[KNOWN];
};

static inline uint8_t *put_entry(
    uint8_t *at, const struct Entry *entry, struct Prefixes *prefixes, int64_t row)
{
    int64_t payload = payload_size(entry, row);
    if (prefixes == NULL || payload >= KNOWN)
        return put_payload(put_prefix(at, entry, payload), entry, row);
    uint8_t *known = prefixes->of[payload].bytes;
    int size = prefixes->of[payload].size;
    if (size == 0) {
        size = (int)(put_prefix(known, entry, payload) - known);
        prefixes->of[payload].size = (uint8_t)size;
    }
    memcpy(at, known, 32); /* faster than `size` bytes; the rest is overwritten later */
    if (size > 32)
        memcpy(at + 32, known + 32, PREFIX_BYTES - 32);
    return put_payload(at + size, entry, row);
}

static inline int is_missing(const struct Entry *entry, int64_t row)
{
    return entry->valid != NULL && !entry->valid[row];
}

/* Returns the size of an entry in its row, with its tag and length. */
static inline int64_t entry_size(const struct Entry *entry, int64_t payload)
{
    return field_size(sizes_of(entry, payload).entry);
}

void measure_features(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows, int64_t *sizes)
{
    memset(sizes, 0, (size_t)num_rows * sizeof *sizes);
    for (int64_t each = 0; each < num_entries; each++) {
        const struct Entry *entry = entries + each;
        int64_t known[KNOWN]; /* table of the sizes for short payloads */
        for (int64_t payload = 0; payload < KNOWN; payload++)
            known[payload] = entry_size(entry, payload);
        for (int64_t row = 0; row < num_rows; row++) {
            if (is_missing(entry, row))
                continue;
            int64_t payload = payload_size(entry, row);
            sizes[row] += payload < KNOWN ? known[payload] : entry_size(entry, payload);
        }
    }
}

int64_t example_size(int64_t features_size)
{
    return field_size(features_size);
}

/* Allocates the prefixes of all entries; returns NULL if there are too few rows for
   them. */
static struct Prefixes *new_prefixes(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows)
{
    for (int64_t each = 0; each < num_entries; each++)
        if (entries[each].key_size > MAX_KEY)
            return NULL;
    if (num_rows < KNOWN || num_entries > MAX_ENTRIES)
        return NULL;
    return calloc((size_t)num_entries, sizeof(struct Prefixes));
}

void write_examples(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows,
    const int64_t *sizes, const int64_t *starts, int64_t head_room, uint8_t *target,
    int64_t limit)
{
    struct Prefixes *known = new_prefixes(entries, num_entries, num_rows);
    for (int64_t row = 0; row < num_rows; row++) {
        /* Copying a cached prefix may write beyond its row, but not beyond the target. */
        struct Prefixes *prefixes = starts[row + 1] + PREFIX_BYTES <= limit ? known : NULL;
        uint8_t *at = target + starts[row];
        memset(at, 0, (size_t)head_room);
        at = put_header(at + head_room, 0x0a, sizes[row]);
        for (int64_t each = 0; each < num_entries; each++) {
            const struct Entry *entry = entries + each;
            if (entry->cuts != NULL) {
                at = put_prefix(at, entry, payload_size(entry, row));
                entry->cuts[row] = at - target;
            } else if (!is_missing(entry, row))
                at = put_entry(at, entry, prefixes ? prefixes + each : NULL, row);
        }
        memset(at, 0, (size_t)(target + starts[row + 1] - at));
    }
    free(known);
}
