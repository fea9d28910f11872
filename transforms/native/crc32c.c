/* Computes CRC-32C by the processor's instruction, or by eight tables without it.

   The CRC of bytes b is the remainder of b as a polynomial over GF(2), divided by
   x^32 + x^28 + x^27 + ... + 1, with bits reflected (0x82f63b78), and with all bits
   inverted before and after. Check value (RFC 3720): crc32c("123456789") = e3069283.

   The instruction processes 8 bytes per cycle, but its result is available after three
   cycles. So one stream of bytes uses a third of the processor; `crc32c_three` processes
   three streams.

   Tables: eight bytes are processed at once. table[7] contains the contribution of the
   first byte to the CRC, after seven more bytes, and table[0] the contribution of the
   last byte ("slicing by 8").
   Source: M. E. Kounavis and F. L. Berry, "Novel Table Lookup-Based Algorithms for
   High-Performance CRC Generation", 2008. */

#include "loops.h"

#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian processors; recordmill works without these loops"
#endif

#if defined(CRC32C_BY_TABLE) /* for a test, on a processor that has the instruction */
#define HAS_INSTRUCTION 0
#elif defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#include <nmmintrin.h>
#define HAS_INSTRUCTION 1
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_1(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HAS_INSTRUCTION 1
#define WITH_INSTRUCTION
#define CRC_8(crc, word) __crc32cd((crc), (word))
#define CRC_1(crc, byte) __crc32cb((crc), (byte))
#else
#define HAS_INSTRUCTION 0
#endif

static uint32_t table[8][256];
static uint32_t power[64]; /* x^8, x^16, x^32, ... for 1, 2, 4, ... following bytes */
static int use_instruction;

/* Returns the product of two polynomials modulo the CRC's; the highest bit is x^0. */
static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t total = 0;
    for (; a; a <<= 1) {
        total ^= b & (0u - (a >> 31));
        b = (b >> 1) ^ (0x82f63b78u & (0u - (b & 1)));
    }
    return total;
}

static uint64_t load_8(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8); /* the data may have any alignment */
    return word;
}

const char *crc32c_choose(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        table[0][byte] = crc;
    }
    for (int behind = 1; behind < 8; behind++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = table[behind - 1][byte];
            table[behind][byte] = (crc >> 8) ^ table[0][crc & 0xff];
        }
    power[0] = 1u << 23;
    for (int each = 1; each < 64; each++)
        power[each] = product(power[each - 1], power[each - 1]);
#if HAS_INSTRUCTION && defined(__x86_64__)
    unsigned a, b, c = 0, d; /* zig's __builtin_cpu_supports always returns 0 */
    use_instruction = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
#else
    use_instruction = HAS_INSTRUCTION;
#endif
    return use_instruction ? "instruction" : "table";
}

static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16
            | (uint32_t)data[3] << 24;
        crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff]
            ^ table[5][crc >> 16 & 0xff] ^ table[4][crc >> 24] ^ table[3][data[4]]
            ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size; data++, size--)
        crc = (crc >> 8) ^ table[0][(crc ^ *data) & 0xff];
    return crc;
}

#if HAS_INSTRUCTION
WITH_INSTRUCTION static uint32_t by_instruction(
    uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8)
        crc = CRC_8(crc, load_8(data));
    for (; size; data++, size--)
        crc = CRC_1(crc, *data);
    return crc;
}

WITH_INSTRUCTION static void three_by_instruction(
    const uint8_t *const data[3], const size_t size[3], uint32_t crc[3])
{
    size_t common = size[0] < size[1] ? size[0] : size[1];
    common = (common < size[2] ? common : size[2]) & ~(size_t)7;
    uint32_t a = ~0u, b = ~0u, c = ~0u;
    for (size_t at = 0; at < common; at += 8) {
        a = CRC_8(a, load_8(data[0] + at));
        b = CRC_8(b, load_8(data[1] + at));
        c = CRC_8(c, load_8(data[2] + at));
    }
    crc[0] = ~by_instruction(a, data[0] + common, size[0] - common);
    crc[1] = ~by_instruction(b, data[1] + common, size[1] - common);
    crc[2] = ~by_instruction(c, data[2] + common, size[2] - common);
}
#endif

uint32_t crc32c_more(uint32_t crc, const uint8_t *data, size_t size)
{
#if HAS_INSTRUCTION
    if (use_instruction)
        return ~by_instruction(~crc, data, size);
#endif
    return ~by_table(~crc, data, size);
}

uint32_t crc32c(const uint8_t *data, size_t size)
{
    return crc32c_more(0, data, size);
}

uint32_t crc32c_behind(uint32_t crc, uint64_t size)
{
    for (int each = 0; size; each++, size >>= 1)
        if (size & 1)
            crc = product(power[each], crc);
    return crc;
}

void crc32c_three(const uint8_t *const data[3], const size_t size[3], uint32_t crc[3])
{
#if HAS_INSTRUCTION
    if (use_instruction) {
        three_by_instruction(data, size, crc);
        return;
    }
#endif
    for (int each = 0; each < 3; each++)
        crc[each] = ~by_table(~0u, data[each], size[each]);
}
