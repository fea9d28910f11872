/* Declares the loops: CRC-32C, frames, cells, objects, numbers, examples, files, pixels. None of them
   knows Python. */

#ifndef RECORDMILL_LOOPS_H
#define RECORDMILL_LOOPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* crc32c.c ---------------------------------------------------------------------------- */

/* Chooses the processor's own instruction if it has one; call it once before all else.
   Returns what does the work: "instruction" or "table". */
const char *crc32c_choose(void);

uint32_t crc32c(const uint8_t *data, size_t size);

/* Computes the CRC-32Cs of three pieces at once: two to three times as fast in the cache. */
void crc32c_three(const uint8_t *const data[3], const size_t size[3], uint32_t crc[3]);

/* Computes the CRC-32C of bytes behind others, from that of those. */
uint32_t crc32c_more(uint32_t crc, const uint8_t *data, size_t size);

/* Computes what a CRC-32C adds to that of all bytes if so many more stand behind its own:
   that of both is `crc32c_behind(first, size of second) ^ second`. */
uint32_t crc32c_behind(uint32_t crc, uint64_t size);

/* frames.c: u64 length | u32 masked crc of length | data | u32 masked crc of data ------ */

enum { HEAD_BYTES = 12, TAIL_BYTES = 4, FRAME_BYTES = HEAD_BYTES + TAIL_BYTES };

/* Writes length and checksums of frame i, which is data[starts[i] .. starts[i + 1]]. */
void seal_frames(uint8_t *data, const int64_t *starts, int64_t count);

/* Returns the first frame whose length or checksums are wrong, or -1.
   Frame i is data[starts[i] .. starts[i] + lengths[i]]. */
int64_t find_damaged(
    const uint8_t *data, const int64_t *starts, const int64_t *lengths, int64_t count);

/* Finds frames that follow each other from data[at] on, by their heads alone: at most
   `most`, up to one that does not lie in the data or whose length is damaged. Writes where
   each begins, and where the last one ends. Returns their number. */
int64_t find_frames(
    const uint8_t *data, int64_t size, int64_t at, int64_t *starts, int64_t most);

/* Does `seal_frames` where each frame lacks the bytes of one cell: sizes[i] bytes with the
   CRC-32C crcs[i] belong before data[cuts[i]]. Returns the CRC-32C of all frames with them. */
uint32_t seal_around_cells(
    uint8_t *data, const int64_t *starts, const int64_t *cuts, const int64_t *sizes,
    const uint32_t *crcs, int64_t count);

/* read_parts.c ------------------------------------------------------------------------ */

/* Reads parts of a file: lengths[i] bytes at offsets[i] to target + starts[i].
   Returns the first part that cannot be read to its end, or -1. */
int64_t gather_parts(
    int descriptor, const int64_t *offsets, const int64_t *starts,
    const int64_t *lengths, int64_t count, uint8_t *target);

#define ANY_TIME INT64_MIN

/* Reads whole files, file i to targets[i]. Returns how many, up to one that does not have
   sizes[i] bytes or was not written modified[i] nanoseconds after 1970, which may be
   ANY_TIME. */
int64_t read_files(
    const char *const *paths, const int64_t *sizes, const int64_t *modified,
    int64_t count, uint8_t *const *targets);

/* status.c ---------------------------------------------------------------------------- */

enum { NO_FILE = -1 };

/* Writes size and times, in nanoseconds since 1970, of files whose paths each end with a
   zero byte; a size of NO_FILE where there is no regular file, it cannot be asked, or 64
   bits do not hold its times. */
void ask_files(
    const char *paths, int64_t count, int64_t *sizes, int64_t *modified, int64_t *changed);

struct stat;

/* Returns when a file was modified, in nanoseconds since 1970; ANY_TIME if 64 bits do not
   hold it. */
int64_t modified_at(const struct stat *status);

/* jpeg.c ------------------------------------------------------------------------------ */

/* Finds height, width and depth of a JPEG that is surely whole. Returns 0 if it is perhaps
   none. */
int read_whole_jpeg(const uint8_t *data, int64_t size, int32_t found[3]);

/* interleave.c ------------------------------------------------------------------------ */

/* Writes the images of rows, whose three planes follow each other, pixel by pixel. */
void interleave_rows(
    const uint8_t *rows, int64_t row_bytes, int64_t count, int64_t pixels,
    uint8_t *images);

/* cells.c ----------------------------------------------------------------------------- */

#define NO_QUOTE '\n'
enum { CELL_SLACK = 32 }; /* bytes behind a column's last cell that a copy may touch */

/* A CSV text, and where its cells go. Cell i of a column is target[starts[column] +
   offsets[i] .. starts[column] + offsets[i + 1]]; each column has max_rows + 1 offsets. */
struct Cells {
    const uint8_t *text;
    int64_t size; /* below 2 GB */
    uint8_t delimiter, quote; /* NO_QUOTE: none has a meaning */
    int64_t num_columns, max_rows;
    int32_t *offsets;
    uint8_t *valid; /* a bit for each row and, column by column, whole bytes; set where
                       a column has empty cells */
    int64_t *starts, *empty; /* of each column: where it begins, how many are empty */
    uint8_t *target; /* as large as the text, and the slack of all columns */
};

/* Copies a cell of no quotes; up to 32 bytes at once where there is room for so many. */
static inline void copy_plain(
    const uint8_t *from, const uint8_t *end, uint8_t *to, int64_t length)
{
    if (length <= CELL_SLACK && end - from >= CELL_SLACK)
        memcpy(to, from, CELL_SLACK);
    else
        memcpy(to, from, (size_t)length);
}

/* Returns how many bytes of a text may end a row. */
int64_t count_row_ends(const uint8_t *text, int64_t size);

/* Splits rows. Returns how many, or -1 if something is not plain, or they are too many. */
int64_t split_cells(const struct Cells *cells);

/* objects.c --------------------------------------------------------------------------- */

/* What the values of a column must be; of an OBJECT, those of its keys. */
enum Holds {
    ANYTHING = '*', TEXT = 's', INTEGER = 'i', DECIMAL = 'd', BOOLEAN = 'b', NOTHING = 'n',
    OBJECT = 'o'
};

struct Span { /* a value: below 0, it begins at ~begin and has escapes */
    int32_t begin, length;
};

/* A text of whole lines, each with its end, and where its cells go: as in `Cells`. Paths
   are the columns, then what else rows may have. Name i, as it is spelled in JSON, is
   names[name_ends[i] .. name_ends[i + 1]], and that of path paths[i]. */
struct Objects {
    const uint8_t *text;
    int64_t size; /* below 2 GB */
    const uint8_t *names;
    const int32_t *name_ends, *paths;
    const uint8_t *holds; /* of each path */
    int64_t num_names, num_columns, max_rows;
    int64_t *seen; /* for each path */
    struct Span *spans; /* for each row and column */
    int64_t *places; /* where rows begin; from the end on, odd lines */
    int32_t *offsets;
    uint8_t *valid; /* all zero */
    int64_t *starts, *missing; /* of each column: where it begins, how many are missing */
    uint8_t *target;
};

/* Splits objects. Returns how many lines are rows, -1 if there are more than fit; the others
   are blank, or odd. */
int64_t split_objects(const struct Objects *objects, int64_t *num_odd);

/* numbers.c --------------------------------------------------------------------------- */

/* Text cells, as Arrow has them. */
struct Texts {
    const int32_t *offsets;
    const uint8_t *data;
    const uint8_t *valid; /* a bit for each cell, or NULL: all are there */
};

/* Read cells; those that are not there become 0. Return whether all are plain numbers. */
int read_integers(const struct Texts *cells, int64_t count, int64_t *integers);
int read_decimals(const struct Texts *cells, int64_t count, double *decimals);

/* Marks cells that have a number of more digits than float32 keeps, but for zeros at either
   end; a point or a comma may be between two digits. */
void mark_long_numbers(
    const int32_t *offsets, const uint8_t *data, int64_t count, uint8_t *marks);

/* examples.c -------------------------------------------------------------------------- */

enum Kind { BYTES_LIST = 0x0a, FLOAT_LIST = 0x12, INT64_LIST = 0x1a }; /* field tags */

/* One key of the feature map, and what it holds in every row.

   The values of row i are values[i], or values[lists[i] .. lists[i + 1]] if there are
   lists. Value i of a bytes feature is data[offsets[i] .. offsets[i + 1]]. */
struct Entry {
    const uint8_t *key;
    int64_t key_size;
    enum Kind kind;
    const int64_t *integers;
    const float *floats;
    const int32_t *offsets;
    const uint8_t *data;
    const int64_t *lists; /* NULL: one value in each row */
    const uint8_t *valid; /* NULL: all rows have one; otherwise 0 where none has */
    int64_t *cuts; /* not NULL: bytes are left out, and where they belong is noted here */
};

/* Computes the size of each row's Features message. Entries are in the map's order. */
void measure_features(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows, int64_t *sizes);

/* Returns the size of an Example around a Features message of this size. */
int64_t example_size(int64_t features_size);

/* Writes each row's Example; that of row i begins at target + starts[i] + head_room. What
   is free before and behind it becomes zeros. The target has `limit` bytes. */
void write_examples(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows,
    const int64_t *sizes, const int64_t *starts, int64_t head_room, uint8_t *target,
    int64_t limit);

#endif
