/* Declares the loops: CRC-32C, frames, cells, objects, numbers, examples, files, pixels.
   None of them uses the Python API. */

#ifndef RECORDMILL_LOOPS_H
#define RECORDMILL_LOOPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* crc32c.c ---------------------------------------------------------------------------- */

/* Selects the processor's own instruction if it has one; call it once, before all other
   functions. Returns the implementation: "instruction" or "table". */
const char *crc32c_choose(void);

uint32_t crc32c(const uint8_t *data, size_t size);

/* Computes the CRC-32Cs of three pieces at once: two to three times as fast in the cache. */
void crc32c_three(const uint8_t *const data[3], const size_t size[3], uint32_t crc[3]);

/* Returns the CRC-32C of bytes that continue other bytes, from the CRC-32C of these. */
uint32_t crc32c_more(uint32_t crc, const uint8_t *data, size_t size);

/* Returns the contribution of a CRC-32C to the CRC-32C of all bytes if so many bytes
   follow. The CRC-32C of two parts is
   `crc32c_behind(first, size of second) ^ second`. */
uint32_t crc32c_behind(uint32_t crc, uint64_t size);

/* frames.c: u64 length | u32 masked crc of length | data | u32 masked crc of data ------ */

enum { HEAD_BYTES = 12, TAIL_BYTES = 4, FRAME_BYTES = HEAD_BYTES + TAIL_BYTES };

/* Writes length and checksums of frame i, which is data[starts[i] .. starts[i + 1]]. */
void seal_frames(uint8_t *data, const int64_t *starts, int64_t count);

/* Returns the first frame whose length or checksums are wrong, or -1.
   Frame i is data[starts[i] .. starts[i] + lengths[i]]. */
int64_t find_damaged(
    const uint8_t *data, const int64_t *starts, const int64_t *lengths, int64_t count);

/* Finds consecutive frames from data[at] on by their heads: at most `most`, up to a frame
   that exceeds the data or whose length is damaged. Writes the start of each frame, and
   the end of the last one. Returns their number. */
int64_t find_frames(
    const uint8_t *data, int64_t size, int64_t at, int64_t *starts, int64_t most);

/* Like `seal_frames`, if each frame lacks the bytes of one cell: sizes[i] bytes with the
   CRC-32C crcs[i] belong before data[cuts[i]]. Returns the CRC-32C of all frames with
   them. */
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

/* Reads whole files, file i to targets[i]. Returns the number of files up to the first
   one that has not sizes[i] bytes, or was not modified at modified[i] nanoseconds since
   1970 (unless ANY_TIME). */
int64_t read_files(
    const char *const *paths, const int64_t *sizes, const int64_t *modified,
    int64_t count, uint8_t *const *targets);

/* status.c ---------------------------------------------------------------------------- */

enum { NO_FILE = -1 };

/* Writes sizes and times, in nanoseconds since 1970, of files whose paths each end with a
   zero byte. The size is NO_FILE if the path is no regular file, its status cannot be
   read, or 64 bits cannot represent its times. */
void ask_files(
    const char *paths, int64_t count, int64_t *sizes, int64_t *modified, int64_t *changed);

struct stat;

/* Returns the modification time of a file in nanoseconds since 1970; ANY_TIME if it
   exceeds 64 bits. */
int64_t modified_at(const struct stat *status);

/* jpeg.c ------------------------------------------------------------------------------ */

/* Reads height, width and depth of a JPEG that is certainly complete. Returns 0 for all
   other files. */
int read_whole_jpeg(const uint8_t *data, int64_t size, int32_t found[3]);

/* interleave.c ------------------------------------------------------------------------ */

/* Writes the images of rows with three consecutive planes, pixel by pixel. */
void interleave_rows(
    const uint8_t *rows, int64_t row_bytes, int64_t count, int64_t pixels,
    uint8_t *images);

/* cells.c ----------------------------------------------------------------------------- */

#define NO_QUOTE '\n'
enum { CELL_SLACK = 32 }; /* bytes after a column's last cell that a copy may overwrite */

/* A CSV text and the buffers for its cells. Cell i of a column is target[starts[column] +
   offsets[i] .. starts[column] + offsets[i + 1]]; each column has max_rows + 1 offsets. */
struct Cells {
    const uint8_t *text;
    int64_t size; /* below 2 GB */
    uint8_t delimiter, quote; /* NO_QUOTE: quotes are text */
    int64_t num_columns, max_rows;
    int32_t *offsets;
    uint8_t *valid; /* a bit for each row and, column by column, whole bytes; set where
                       a column has empty cells */
    int64_t *starts, *empty; /* per column: its start, and the number of empty cells */
    uint8_t *target; /* as large as the text plus the slack of all columns */
};

/* Copies a cell without quotes; up to 32 bytes at once if there is enough space. */
static inline void copy_plain(
    const uint8_t *from, const uint8_t *end, uint8_t *to, int64_t length)
{
    if (length <= CELL_SLACK && end - from >= CELL_SLACK)
        memcpy(to, from, CELL_SLACK);
    else
        memcpy(to, from, (size_t)length);
}

/* Returns the number of bytes of a text that may end a row. */
int64_t count_row_ends(const uint8_t *text, int64_t size);

/* Splits rows. Returns their number, or -1 if the text is not plain or has too many
   rows. */
int64_t split_cells(const struct Cells *cells);

/* objects.c --------------------------------------------------------------------------- */

/* The required type of a column's values; for an OBJECT, its keys have types. */
enum Holds {
    ANYTHING = '*', TEXT = 's', INTEGER = 'i', DECIMAL = 'd', BOOLEAN = 'b', NOTHING = 'n',
    OBJECT = 'o'
};

struct Span { /* a value; if begin < 0, it begins at ~begin and has escapes */
    int32_t begin, length;
};

/* A text of whole lines with their ends, and the buffers for its cells, as in `Cells`.
   Paths are the columns, followed by other keys that rows may have. Name i, in a JSON
   spelling, is names[name_ends[i] .. name_ends[i + 1]]; it is a name of path paths[i]. */
struct Objects {
    const uint8_t *text;
    int64_t size; /* below 2 GB */
    const uint8_t *names;
    const int32_t *name_ends, *paths;
    const uint8_t *holds; /* type of each path */
    int64_t num_names, num_columns, max_rows;
    int64_t *seen; /* for each path */
    struct Span *spans; /* for each row and column */
    int64_t *places; /* starts of rows; from the end backwards, of odd lines */
    int32_t *offsets;
    uint8_t *valid; /* all zero */
    int64_t *starts, *missing; /* per column: its start, number of missing cells */
    uint8_t *target;
};

/* Splits objects. Returns the number of lines that are rows, or -1 if there are too many;
   the other lines are blank or odd. */
int64_t split_objects(const struct Objects *objects, int64_t *num_odd);

/* numbers.c --------------------------------------------------------------------------- */

/* Text cells in Arrow's format. */
struct Texts {
    const int32_t *offsets;
    const uint8_t *data;
    const uint8_t *valid; /* a bit for each cell; NULL if all are present */
};

/* Parse cells; missing cells become 0. Return whether all are plain numbers. */
int read_integers(const struct Texts *cells, int64_t count, int64_t *integers);
int read_decimals(const struct Texts *cells, int64_t count, double *decimals);

/* Marks cells with a number of more digits than float32 preserves, without zeros at
   either end; a point or a comma may be between two digits. */
void mark_long_numbers(
    const int32_t *offsets, const uint8_t *data, int64_t count, uint8_t *marks);

/* examples.c -------------------------------------------------------------------------- */

enum Kind { BYTES_LIST = 0x0a, FLOAT_LIST = 0x12, INT64_LIST = 0x1a }; /* field tags */

/* One key of the feature map, and its values in every row.

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
    const int64_t *lists; /* NULL: one value per row */
    const uint8_t *valid; /* NULL: no row is missing; otherwise 0 for missing rows */
    int64_t *cuts; /* not NULL: bytes are left out; their positions are stored here */
};

/* Computes the size of each row's Features message. The entries are in map order. */
void measure_features(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows, int64_t *sizes);

/* Returns the size of an Example with a Features message of this size. */
int64_t example_size(int64_t features_size);

/* Writes each row's Example; the Example of row i begins at target + starts[i] +
   head_room. The free space before and after it becomes zeros. The target has `limit`
   bytes. */
void write_examples(
    const struct Entry *entries, int64_t num_entries, int64_t num_rows,
    const int64_t *sizes, const int64_t *starts, int64_t head_room, uint8_t *target,
    int64_t limit);

#endif
