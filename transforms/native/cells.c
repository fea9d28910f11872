/* Splits the rows of a CSV text into columns of cells, in two passes.

   The first pass measures: it visits all marks (delimiters, quotes, row ends), 64 bytes
   at a time, and stores the end of each cell in its column. The second pass copies each
   cell to its position. For  1,"a""b"\n22,\n  and two columns:

       lengths     1 3    2 0
       offsets     column 0: 0 1 3      column 1: 0 3 3
       target      1 2 2 . . .          a " b . . .         (. : slack)

   Only plain text is split here. If a row has another width, text follows a closing
   quote, or a quote is never closed, then Arrow splits the whole text and reports the
   problem. */

#include "loops.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { STEP = 64 };

static uint64_t marks_in(const uint8_t *data, uint8_t delimiter, uint8_t quote)
{
    uint64_t found = 0;
#if defined(__SSE2__)
    const __m128i ends = _mm_set1_epi8('\n'), returns = _mm_set1_epi8('\r');
    const __m128i delimiters = _mm_set1_epi8((char)delimiter);
    const __m128i quotes = _mm_set1_epi8((char)quote);
    for (int at = 0; at < STEP; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(data + at));
        __m128i marks = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(bytes, delimiters), _mm_cmpeq_epi8(bytes, quotes)),
            _mm_or_si128(_mm_cmpeq_epi8(bytes, ends), _mm_cmpeq_epi8(bytes, returns)));
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(marks) << at;
    }
#else
    for (int at = 0; at < STEP; at++) {
        uint8_t byte = data[at];
        int is_mark = (byte == delimiter) | (byte == quote) | (byte == '\n') | (byte == '\r');
        found |= (uint64_t)is_mark << at;
    }
#endif
    return found;
}

int64_t count_row_ends(const uint8_t *text, int64_t size)
{
    int64_t total = 0;
    while (size > 0) {
        int64_t some = size < 255 ? size : 255;
        uint8_t count = 0; /* one byte, so that the compiler vectorizes the loop */
        for (int64_t at = 0; at < some; at++)
            count += (uint8_t)((text[at] == '\n') | (text[at] == '\r'));
        total += count;
        text += some;
        size -= some;
    }
    return total;
}

/* The state of the first pass. */
struct Place {
    int64_t row, column, begin; /* `begin`: start of the cell */
    int64_t quotes, last_quote; /* the quotes in a cell that begins with a quote */
};

/* Ends a cell. Returns whether the text is plain so far. */
static inline int end_cell(
    struct Place *place, const struct Cells *cells, int64_t here, int is_row_end)
{
    int64_t length = here - place->begin, column = place->column;
    if (length == 0 && is_row_end && column == 0) { /* a blank row, or the \n of \r\n */
        place->begin = here + 1;
        return 1;
    }
    if (place->quotes) {
        length -= 1 + place->quotes / 2;
        place->quotes = 0;
    }
    if (is_row_end != (column == cells->num_columns - 1) || place->row >= cells->max_rows)
        return 0;
    int32_t *ends = cells->offsets + column * (cells->max_rows + 1) + place->row;
    ends[1] = ends[0] + (int32_t)length;
    place->begin = here + 1;
    place->column = is_row_end ? 0 : column + 1;
    place->row += is_row_end;
    return 1;
}

/* Fills the offsets. Returns the number of rows, or -1. */
static int64_t measure(const struct Cells *cells)
{
    struct Place place = {0, 0, 0, 0, 0};
    const uint8_t *text = cells->text;
    const uint8_t delimiter = cells->delimiter, quote = cells->quote;
    for (int64_t column = 0; column < cells->num_columns; column++)
        cells->offsets[column * (cells->max_rows + 1)] = 0;
    for (int64_t at = 0; at < cells->size; at += STEP) {
        uint8_t rest[STEP] = {0};
        const uint8_t *data = text + at;
        if (cells->size - at < STEP)
            data = memcpy(rest, data, (size_t)(cells->size - at));
        uint64_t found = marks_in(data, delimiter, quote);
        for (; found; found &= found - 1) {
            int64_t here = at + __builtin_ctzll(found);
            if (here >= cells->size)
                break;
            uint8_t byte = text[here];
            if (place.quotes & 1) { /* within quotes */
                if (byte != quote)
                    continue;
            } else if (place.quotes && here != place.last_quote + 1) {
                return -1; /* text after the closing quote */
            }
            if (byte == quote && quote != NO_QUOTE) {
                if (place.quotes || here == place.begin) {
                    place.quotes++;
                    place.last_quote = here;
                }
                continue; /* a quote in a cell that does not begin with a quote is text */
            }
            if (!end_cell(&place, cells, here, byte != delimiter))
                return -1;
        }
    }
    if (place.quotes && (place.quotes & 1 || place.last_quote != cells->size - 1))
        return -1;
    if (place.column > 0 || place.begin < cells->size)
        if (!end_cell(&place, cells, cells->size, 1))
            return -1;
    return place.row;
}

/* Copies a cell that begins with a quote. Returns its end in the text. */
static const uint8_t *copy_quoted(
    const uint8_t *from, uint8_t quote, uint8_t *to, int64_t length)
{
    const uint8_t *found;
    from++;
    while ((found = memchr(from, quote, (size_t)length)) != NULL) {
        int64_t size = found + 1 - from;
        memcpy(to, from, (size_t)size);
        to += size;
        length -= size;
        from = found + 2; /* two quotes represent one */
    }
    memcpy(to, from, (size_t)length);
    from += length;
    return from + 1;
}

static void copy_cells(const struct Cells *cells, int64_t num_rows)
{
    const uint8_t *from = cells->text, *end = from + cells->size;
    for (int64_t row = 0; row < num_rows; row++) {
        while (*from == '\n' || *from == '\r')
            from++;
        const int32_t *ends = cells->offsets + row;
        for (int64_t column = 0; column < cells->num_columns; column++) {
            uint8_t *to = cells->target + cells->starts[column] + ends[0];
            int64_t length = ends[1] - ends[0];
            ends += cells->max_rows + 1;
            if (from < end && *from == cells->quote && cells->quote != NO_QUOTE) {
                from = copy_quoted(from, cells->quote, to, length);
            } else {
                copy_plain(from, end, to, length);
                from += length;
            }
            from++; /* the delimiter, or the row's end */
        }
    }
}

/* Sets a bit for each cell of a column that is not empty. Returns the number of empty
   cells. */
static int64_t find_empty(const int32_t *ends, int64_t num_rows, uint8_t *valid)
{
    int64_t empty = 0;
    for (int64_t row = 0; row < num_rows; row++)
        empty += ends[row] == ends[row + 1];
    if (empty) {
        memset(valid, 0, (size_t)(num_rows + 7) / 8);
        for (int64_t row = 0; row < num_rows; row++)
            valid[row / 8] |= (uint8_t)((ends[row] != ends[row + 1]) << row % 8);
    }
    return empty;
}

int64_t split_cells(const struct Cells *cells)
{
    int64_t num_rows = measure(cells), start = 0;
    for (int64_t column = 0; num_rows >= 0 && column < cells->num_columns; column++) {
        const int32_t *ends = cells->offsets + column * (cells->max_rows + 1);
        cells->starts[column] = start;
        start += ends[num_rows] + CELL_SLACK;
        cells->empty[column] = find_empty(
            ends, num_rows, cells->valid + column * ((cells->max_rows + 7) / 8));
    }
    if (num_rows > 0)
        copy_cells(cells, num_rows);
    return num_rows;
}
