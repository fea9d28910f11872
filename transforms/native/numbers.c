/* Parses cells with plain numbers: 0, -12, 3.50; no blanks, no plus, no exponent, no
   leading zeros.

   A decimal is a whole number below 2^53, divided by a power of ten up to 10^22. Both are
   exact as double, so the quotient is the double nearest to the cell's value.
   Source: W. D. Clinger, "How to Read Floating Point Numbers Accurately", 1990. */

#include "loops.h"

#include <float.h>
#include <string.h>

enum { MOST_BYTES = 19 }; /* digits without the sign that fit into 64 bits */
enum { FLOAT_DIGITS = 7 }; /* digits that float32 certainly preserves */

/* Reads digits up to the first other byte. Returns its position. */
static inline const uint8_t *read_digits(
    const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    for (; at < end && (uint8_t)(*at - '0') <= 9; at++)
        *number = *number * 10 + (uint8_t)(*at - '0');
    return at;
}

/* Reads the digits before a point. Returns their end, or NULL. */
static inline const uint8_t *read_whole(
    const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    if (at == end || end - at > MOST_BYTES)
        return NULL;
    const uint8_t *behind = read_digits(at, end, number);
    return behind == at || (*at == '0' && behind > at + 1) ? NULL : behind;
}

/* Signs are applied by arithmetic: a branch would often be mispredicted. */
static inline int read_integer(const uint8_t *at, const uint8_t *end, int64_t *integer)
{
    uint64_t number = 0, is_negative = at < end && *at == '-';
    const uint8_t *behind = read_whole(at + is_negative, end, &number);
    *integer = (int64_t)((number ^ (0 - is_negative)) + is_negative);
    return behind == end && number < 1000000000000000000 && (number || !is_negative);
}

static inline int read_decimal(const uint8_t *at, const uint8_t *end, double *decimal)
{
    static const double powers[MOST_BYTES] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                              1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                              1e14, 1e15, 1e16, 1e17, 1e18};
    uint64_t number = 0, bits;
    uint64_t is_negative = at < end && *at == '-';
    const uint8_t *point = read_whole(at + is_negative, end, &number);
    int64_t places = 0;
    if (point != NULL && point < end) {
        places = read_digits(point + 1, end, &number) - point - 1;
        if (*point != '.' || places == 0)
            return 0;
    }
    if (point == NULL || point + (places > 0) + places != end)
        return 0;
    double quotient = (double)number / powers[places];
    memcpy(&bits, &quotient, 8);
    bits ^= is_negative << 63;
    memcpy(decimal, &bits, 8);
    /* If intermediate doubles have more bits, they are rounded twice. */
    return number < (uint64_t)1 << 53 && FLT_EVAL_METHOD == 0;
}

/* Returns the most digits of a number in the cell, without zeros at either end. */
static int64_t most_digits(const uint8_t *at, const uint8_t *end)
{
    int64_t digits = 0, most = 0, is_behind_mark = 0;
    for (; at < end; at++) {
        int digit = *at - '0', is_digit = (uint8_t)digit <= 9;
        is_behind_mark = !is_digit && !is_behind_mark && (*at == '.' || *at == ',');
        if (!is_digit && !is_behind_mark)
            digits = 0;
        digits += is_digit && (digits || digit);
        most = is_digit && digit && digits > most ? digits : most;
    }
    return most;
}

void mark_long_numbers(
    const int32_t *offsets, const uint8_t *data, int64_t count, uint8_t *marks)
{
    for (int64_t each = 0; each < count; each++) {
        const uint8_t *at = data + offsets[each], *end = data + offsets[each + 1];
        for (; at < end && (uint8_t)(*at - '1') > 8; at++) {}
        for (; at < end && (uint8_t)(end[-1] - '1') > 8; end--) {}
        int64_t others = 0, points = 0, size = end - at;
        for (int64_t byte = 0; byte < size; byte++) {
            others += (uint8_t)(at[byte] - '0') > 9;
            points += at[byte] == '.';
        }
        size = others <= 1 && others == points ? size - others : most_digits(at, end);
        marks[each] = size > FLOAT_DIGITS;
    }
}

/* Returns whether a cell is present; the bits are in Arrow's order. */
static inline int is_there(const struct Texts *cells, int64_t each)
{
    return cells->valid == NULL || (cells->valid[each / 8] >> each % 8 & 1);
}

int read_integers(const struct Texts *cells, int64_t count, int64_t *integers)
{
    int good = 1;
    for (int64_t each = 0; good && each < count; each++) {
        const int32_t *ends = cells->offsets + each;
        integers[each] = 0;
        if (is_there(cells, each))
            good = read_integer(
                cells->data + ends[0], cells->data + ends[1], integers + each);
    }
    return good;
}

int read_decimals(const struct Texts *cells, int64_t count, double *decimals)
{
    int good = 1;
    for (int64_t each = 0; good && each < count; each++) {
        const int32_t *ends = cells->offsets + each;
        decimals[each] = 0;
        if (is_there(cells, each))
            good = read_decimal(
                cells->data + ends[0], cells->data + ends[1], decimals + each);
    }
    return good;
}
