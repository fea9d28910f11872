/* Interleaves the planes of images, pixel by pixel:

   r0 r1 r2 | g0 g1 g2 | b0 b1 b2    becomes    r0 g0 b0  r1 g1 b1  r2 g2 b2

   Compilers turn the loop into shuffles of 16 bytes if the processor has them: 0.14 us
   for 32 x 32 pixels, instead of 0.8 us byte by byte. */

#include "loops.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#define HAS_SHUFFLE 1
#define WITH_SHUFFLE __attribute__((target("ssse3")))
#else
#define HAS_SHUFFLE 0
#endif

static inline void interleave_one(
    const uint8_t *restrict planes, int64_t pixels, uint8_t *restrict image)
{
    const uint8_t *second = planes + pixels, *third = second + pixels;
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        image[3 * pixel] = planes[pixel];
        image[3 * pixel + 1] = second[pixel];
        image[3 * pixel + 2] = third[pixel];
    }
}

#if HAS_SHUFFLE
WITH_SHUFFLE static void interleave_by_shuffle(
    const uint8_t *rows, int64_t row_bytes, int64_t count, int64_t pixels,
    uint8_t *images)
{
    for (int64_t row = 0; row < count; row++)
        interleave_one(rows + row * row_bytes, pixels, images + row * 3 * pixels);
}
#endif

void interleave_rows(
    const uint8_t *rows, int64_t row_bytes, int64_t count, int64_t pixels,
    uint8_t *images)
{
#if HAS_SHUFFLE
    unsigned a, b, c = 0, d; /* see crc32c.c */
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3)) {
        interleave_by_shuffle(rows, row_bytes, count, pixels, images);
        return;
    }
#endif
    for (int64_t row = 0; row < count; row++)
        interleave_one(rows + row * row_bytes, pixels, images + row * 3 * pixels);
}
