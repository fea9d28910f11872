/* Splits lines that are JSON objects into columns of cells, in two passes, like cells.c.

   The first pass stores the position of each value, and the second pass copies the
   values. For the columns "a" and "o/x",  {"a": "b\n", "o": {"x": 1.5}}  has the cells b,
   newline and 1.5. A line is odd if it is not certainly such an object, if it has other
   or repeated keys, or if a value may not match its column. Python's json reads odd
   lines, and reports problems. The other lines are valid JSON, and are read with the same
   result as by json. */

#include "loops.h"

enum {
    MISSING = -1,
    MOST_OBJECTS = 8, /* of nested objects */
    MOST_LISTS = 32,
    MOST_TRIES = 64, /* names that a key is compared with */
    MOST_BYTES = 40, /* of a number: with two digits of exponent a double */
    INTEGER_DIGITS = 18, /* fewer than the digits of the largest int64 */
    EXACT_DIGITS = 15 /* double can represent all integers with so many digits */
};

static inline const uint8_t *skip_blanks(const uint8_t *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\r')
        at++;
    return at;
}

/* Each of these functions returns the end of the token that begins at `at`, or NULL if it
   is odd. The text ends with a line end, which no token contains. So a step of one byte
   never leaves the text. */

static inline const uint8_t *read_word(const uint8_t *at, const char *word)
{
    for (; *word; at++, word++)
        if (*at != (uint8_t)*word)
            return NULL;
    return at;
}

static inline const uint8_t *read_digits(const uint8_t *at)
{
    const uint8_t *begin = at;
    while ((uint8_t)(*at - '0') <= 9)
        at++;
    return at == begin ? NULL : at;
}

/* Also computes the number of an integer's digits; 0 if the number is no integer. */
static inline const uint8_t *read_number(const uint8_t *at, int64_t *digits)
{
    const uint8_t *begin = at, *whole = at + (*at == '-'), *exponent;
    if ((at = read_digits(whole)) == NULL || (*whole == '0' && at > whole + 1))
        return NULL;
    *digits = at - whole;
    if (*at == '.') {
        *digits = 0;
        if ((at = read_digits(at + 1)) == NULL)
            return NULL;
    }
    if ((*at | 0x20) == 'e') {
        *digits = 0;
        exponent = at + 1 + (at[1] == '-' || at[1] == '+');
        if ((at = read_digits(exponent)) == NULL || at > exponent + 2)
            return NULL;
    }
    /* -0 is an integer in Python, where it loses its sign. */
    return at - begin > MOST_BYTES || (*digits && *begin == '-' && *whole == '0') ? NULL : at;
}

/* Reads four hexadecimal digits of an escape; returns -1 for other characters. */
static int32_t read_unit(const uint8_t *at)
{
    int32_t unit = 0;
    for (int place = 0; place < 4; place++, at++) {
        uint8_t digit = (uint8_t)(*at - '0'), letter = (uint8_t)((*at | 0x20) - 'a');
        if (digit > 9 && letter > 5)
            return -1;
        unit = unit * 16 + (digit > 9 ? letter + 10 : digit);
    }
    return unit;
}

/* Reads an escape, and writes its character. */
static const uint8_t *read_escape(const uint8_t *at, uint8_t text[4], int64_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found = at[1] ? strchr(letters, at[1]) : NULL;
    *length = 1;
    if (found != NULL) {
        text[0] = (uint8_t)meant[found - letters];
        return at + 2;
    }
    int32_t low, code = at[1] == 'u' ? read_unit(at + 2) : -1;
    at += 6;
    if (code >= 0xd800 && code < 0xdc00) {
        low = at[0] == '\\' && at[1] == 'u' ? read_unit(at + 2) : -1;
        code = low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + (code - 0xd800) * 1024 + low - 0xdc00;
        at += 6;
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        code = -1;
    }
    if (code < 0)
        return NULL;
    *length = 1 + (code > 0x7f) + (code > 0x7ff) + (code > 0xffff);
    text[0] = (uint8_t)code;
    for (int64_t place = *length - 1; *length > 1 && place >= 0; place--, code >>= 6)
        text[place] = (uint8_t)(place ? 0x80 | (code & 0x3f) : (0xf00 >> *length) | code);
    return at;
}

/* Reads a string; computes the number of its bytes without escapes. */
static inline const uint8_t *read_string(const uint8_t *at, int64_t *length)
{
    const uint8_t *begin = ++at;
    int64_t size, saved = 0;
    uint8_t text[4];
    for (; *at != '"'; at++) {
        while (*at == '\\') {
            const uint8_t *escape = at;
            if ((at = read_escape(at, text, &size)) == NULL)
                return NULL;
            saved += at - escape - size;
        }
        if (*at == '"')
            break;
        if (*at < 0x20)
            return NULL;
    }
    *length = at - begin - saved;
    return at + 1;
}

static const uint8_t *read_list(const uint8_t *at, int depth)
{
    int64_t length;
    if (depth == MOST_LISTS)
        return NULL;
    at = skip_blanks(at + 1);
    while (*at != ']') {
        if (*at == '"')
            at = read_string(at, &length);
        else if (*at == '[')
            at = read_list(at, depth + 1);
        else if (*at == 't' || *at == 'f' || *at == 'n')
            at = read_word(at, *at == 't' ? "true" : *at == 'f' ? "false" : "null");
        else
            at = read_number(at, &length);
        if (at == NULL)
            return NULL;
        at = skip_blanks(at);
        if (*at != ',')
            break;
        at = skip_blanks(at + 1);
        if (*at == ']')
            return NULL;
    }
    return *at == ']' ? at + 1 : NULL;
}

/* Reads a value that is no object, and stores its position. */
static inline const uint8_t *read_value(
    const uint8_t *at, const uint8_t *text, uint8_t holds, struct Span *span)
{
    const uint8_t *begin = at;
    int64_t length = 0;
    int fits = holds == ANYTHING;
    if (*at == 'n')
        return holds == OBJECT ? NULL : read_word(at, "null");
    if (*at == '"') {
        at = read_string(at, &length);
        fits |= holds == TEXT;
    } else if (*at == '[') {
        at = read_list(at, 0);
    } else if (*at == 't' || *at == 'f') {
        at = read_word(at, *at == 't' ? "true" : "false");
        fits |= holds == BOOLEAN;
    } else {
        at = read_number(at, &length);
        fits |= holds == INTEGER ? length > 0 && length <= INTEGER_DIGITS
                                 : holds == DECIMAL && length <= EXACT_DIGITS;
    }
    if (at == NULL || !fits)
        return NULL;
    span->begin = (int32_t)(begin - text);
    span->length = (int32_t)(at - begin);
    if (holds == TEXT) {
        int is_plain = length == at - begin - 2;
        span->begin = is_plain ? span->begin + 1 : ~(span->begin + 1);
        span->length = (int32_t)length;
    }
    return at;
}

/* Returns the index, from `first` on, of the name that equals a key; -1 for none. */
static inline int64_t find_name(
    const struct Objects *objects, int64_t first, int64_t object, const uint8_t *key,
    int64_t size)
{
    const int32_t *ends = objects->name_ends;
    int64_t inside = object < 0 ? 0 : ends[object + 1] - ends[object];
    int64_t before = object < 0 ? 0 : inside + 1, each = first;
    for (int64_t tries = 0; tries < objects->num_names && tries < MOST_TRIES; tries++) {
        each = each < objects->num_names ? each : 0;
        const uint8_t *name = objects->names + ends[each];
        if (ends[each + 1] - ends[each] == before + size
            && memcmp(name + before, key, (size_t)size) == 0
            && (object < 0 || (name[inside] == '/'
                && memcmp(name, objects->names + ends[object], (size_t)inside) == 0)))
            return each;
        each++;
    }
    return -1;
}

/* Reads an object with its nested objects. `line` is a unique number of the line. */
static const uint8_t *read_object(
    const uint8_t *at, const struct Objects *objects, int64_t line, struct Span *spans)
{
    int64_t inside[MOST_OBJECTS + 1] = {-1}, depth = 0, name = -1, length;
    struct Span nowhere;
    at = skip_blanks(at + 1);
    int is_empty = *at == '}';
    for (;;) {
        if (!is_empty) {
            const uint8_t *key = at + 1;
            if (*at != '"' || (at = read_string(at, &length)) == NULL)
                return NULL;
            name = find_name(objects, name + 1, inside[depth], key, at - key - 1);
            at = skip_blanks(at);
            if (name < 0 || *at != ':')
                return NULL;
            int32_t path = objects->paths[name];
            if (objects->seen[path] == line)
                return NULL;
            objects->seen[path] = line;
            at = skip_blanks(at + 1);
            if (*at == '{') {
                if (depth == MOST_OBJECTS)
                    return NULL;
                inside[++depth] = name;
                at = skip_blanks(at + 1);
                is_empty = *at == '}';
                continue;
            }
            at = read_value(
                at, objects->text, objects->holds[path],
                path < objects->num_columns ? spans + path : &nowhere);
            if (at == NULL)
                return NULL;
        }
        is_empty = 0;
        while (*(at = skip_blanks(at)) == '}') {
            at++;
            if (depth-- == 0)
                return at;
        }
        if (*at != ',')
            return NULL;
        at = skip_blanks(at + 1);
    }
}

/* Stores which cells of a row are present, and their ends in their columns. */
static void end_row(const struct Objects *objects, int64_t row, const struct Span *spans)
{
    for (int64_t column = 0; column < objects->num_columns; column++) {
        int32_t *ends = objects->offsets + column * (objects->max_rows + 1) + row;
        int is_there = spans[column].length != MISSING;
        ends[1] = ends[0] + (is_there ? spans[column].length : 0);
        objects->valid[column * ((objects->max_rows + 7) / 8) + row / 8] |=
            (uint8_t)(is_there << row % 8);
        objects->missing[column] += !is_there;
    }
}

static void copy_values(const struct Objects *objects, int64_t num_rows)
{
    const struct Span *span = objects->spans;
    const uint8_t *end = objects->text + objects->size;
    for (int64_t row = 0; row < num_rows; row++) {
        const int32_t *ends = objects->offsets + row;
        for (int64_t column = 0; column < objects->num_columns; column++, span++) {
            uint8_t *to = objects->target + objects->starts[column] + *ends;
            ends += objects->max_rows + 1;
            if (span->length > 0 && span->begin >= 0)
                copy_plain(objects->text + span->begin, end, to, span->length);
            else if (span->length > 0) {
                const uint8_t *from = objects->text + ~span->begin;
                while (*from != '"') {
                    int64_t size = 1;
                    if (*from == '\\')
                        from = read_escape(from, to, &size);
                    else
                        *to = *from++;
                    to += size;
                }
            }
        }
    }
}

int64_t split_objects(const struct Objects *objects, int64_t *num_odd)
{
    const uint8_t *at = objects->text, *end = at + objects->size, *found;
    int64_t num_rows = 0, line = 0, start = 0;
    for (int64_t column = 0; column < objects->num_columns; column++)
        objects->offsets[column * (objects->max_rows + 1)] = 0;
    for (*num_odd = 0; at < end; line++) {
        const uint8_t *begin = at;
        struct Span *spans = objects->spans + num_rows * objects->num_columns;
        if ((found = read_word(at, "\xef\xbb\xbf")) != NULL)
            at = found;
        at = skip_blanks(at);
        if (*at != '\n' || found != NULL) {
            if (num_rows + *num_odd == objects->max_rows)
                return -1;
            for (int64_t column = 0; column < objects->num_columns; column++)
                spans[column].length = MISSING;
            at = *at == '{' ? read_object(at, objects, line + 1, spans) : NULL;
            at = at == NULL ? NULL : skip_blanks(at);
            if (at != NULL && *at == '\n') {
                objects->places[num_rows] = begin - objects->text;
                end_row(objects, num_rows++, spans);
            } else {
                objects->places[objects->max_rows - ++*num_odd] = begin - objects->text;
                at = memchr(begin, '\n', (size_t)(end - begin));
            }
        }
        at++;
    }
    for (int64_t column = 0; column < objects->num_columns; column++) {
        objects->starts[column] = start;
        start += objects->offsets[column * (objects->max_rows + 1) + num_rows] + CELL_SLACK;
    }
    copy_values(objects, num_rows);
    return num_rows;
}
