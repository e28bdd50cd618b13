/* The statistics of a comparison, in one pass over two arrays and a mask.
 *
 * Built with -DWIDE=0 to compare in float32 and with -DWIDE=1 in float64. What is unequal is
 * decided on bit patterns. A tile of equal values costs little more than reading it; only one
 * that holds a mismatch is looked at in detail, while it is in the first-level cache.
 */
#include <fenv.h>
#include <stdint.h>
#include <string.h>

#if WIDE
typedef double real;
typedef uint64_t word;
#define INFINITE ((word)0x7ff << 52)
#else
typedef float real;
typedef uint32_t word;
#define INFINITE ((word)0xff << 23)
#endif

#define SIGN ((word)1 << (8 * sizeof(word) - 1))
/* The largest power of two; differences of values below it cannot overflow. */
#define TAME (INFINITE - (INFINITE & -INFINITE))
#define TILE 1024

/* What an array holds; the numbers are those of KINDS in compiled.py. */
enum kind { NOTHING, BOOL, INT8, INT16, INT32, INT64, BFLOAT16, FLOAT16, FLOAT32, FLOAT64 };

/* The fields are those of Found in compiled.py. */
struct found {
    int64_t valid, count, nonfinite;
    uint64_t top, ulp;       /* patterns: of the largest finite distance; a number of steps */
    int64_t place;           /* of the first of the largest mismatches, with both its patterns */
    uint64_t a, b;
    int64_t wrong;           /* whether the mask holds anything but 0 and 1 */
    double sum, squares;
};

static inline real real_of(word bits)
{
    real number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline word word_of(real number)
{
    word bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static inline float single_of(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* A float16 has the pattern of a float32 that is 2**112 times too small. */
static inline float single_of_half(uint16_t half)
{
    uint32_t size = half & 0x7fff, bits;
    float scaled = single_of(size << 13) * 0x1p112f;
    memcpy(&bits, &scaled, sizeof bits);
    bits |= size >= 0x7c00 ? (uint32_t)0xff << 23 : 0;
    return single_of(bits | (uint32_t)(half & 0x8000) << 16);
}

/* Return n values as patterns of the compared type: where they are, else converted into the tile. */
static const word *values(const void *from, int kind, int64_t at, int64_t n, word *tile)
{
    const uint16_t *shorts = (const uint16_t *)from + at;
    const float *singles = (const float *)from + at;
    switch (kind) {
    case BFLOAT16:
        for (int64_t i = 0; i < n; i++)
            tile[i] = word_of(single_of((uint32_t)shorts[i] << 16));
        return tile;
    case FLOAT16:
        for (int64_t i = 0; i < n; i++)
            tile[i] = word_of(single_of_half(shorts[i]));
        return tile;
#if WIDE
    case FLOAT32:
        for (int64_t i = 0; i < n; i++)
            tile[i] = word_of(singles[i]);
        return tile;
#else
    (void)singles;
#endif
    }
    return (const word *)from + at;
}

/* A mask of integers, or of floats by their patterns; -0.0 is 0. */
#define WHOLE(type)                                                                             \
    do {                                                                                        \
        const type *mask = (const type *)from + at;                                             \
        type other = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                       \
            other |= mask[i] & (type)~1;                                                        \
            tile[i] = -(word)mask[i];                                                           \
        }                                                                                       \
        return other != 0;                                                                      \
    } while (0)
#define FLOATING(type, one)                                                                     \
    do {                                                                                        \
        const type *mask = (const type *)from + at;                                             \
        type other = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                       \
            type size = mask[i] & (type)((type)-1 >> 1);                                        \
            other |= (type)(size != 0) & (type)(size != (type)(one));                           \
            tile[i] = -(word)(size != 0);                                                       \
        }                                                                                       \
        return other != 0;                                                                      \
    } while (0)

/* Fill the tile with all ones where a position counts and 0 elsewhere; return whether the mask
 * holds anything but 0 and 1. */
static int wanted(const void *from, int kind, int64_t at, int64_t n, word *tile)
{
    switch (kind) {
    case BOOL:
    case INT8: WHOLE(uint8_t);
    case INT16: WHOLE(uint16_t);
    case INT32: WHOLE(uint32_t);
    case INT64: WHOLE(uint64_t);
    case BFLOAT16: FLOATING(uint16_t, 0x3f80);
    case FLOAT16: FLOATING(uint16_t, 0x3c00);
    case FLOAT32: FLOATING(uint32_t, 0x3f800000);
    case FLOAT64: FLOATING(uint64_t, (uint64_t)0x3ff << 52);
    }
    memset(tile, 0xff, n * sizeof *tile);
    return 0;
}

/* Add a tile that holds a mismatch. Where it is tame, every value is finite and so is every
 * difference, which is 0 exactly where the values are equal. */
static inline __attribute__((always_inline)) void
detail(const word *a, const word *b, const word *mask, int64_t n, int64_t at, const int tame,
       struct found *found)
{
    word distance[TILE], top = 0, ulp = 0, count = 0, infinite = 0;
    double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares, count, infinite) reduction(max : top, ulp)
    for (int64_t i = 0; i < n; i++) {
        word x = a[i] & ~SIGN, y = b[i] & ~SIGN, differ = mask[i];
        if (!tame)
            differ &= -(word)(((a[i] != b[i]) & ((x | y) != 0)) | (x > INFINITE));
        word d = word_of(real_of(a[i]) - real_of(b[i])) & ~SIGN & differ;
        word steps = ((a[i] ^ b[i]) & SIGN ? x + y : x > y ? x - y : y - x) & differ;
        distance[i] = d;
        count += d != 0;
        if (!tame) {
            infinite += d >= INFINITE;
            d &= -(word)(d < INFINITE);
            steps &= -(word)((x < INFINITE) & (y < INFINITE));
        }
        double size = real_of(d);
        top = d > top ? d : top;
        ulp = steps > ulp ? steps : ulp;
        sum += size;
        squares += size * size;
    }
    if (!found->nonfinite && (infinite || top > found->top)) {
        int64_t i = 0;
        while (infinite ? distance[i] < INFINITE : distance[i] != top)
            i++;
        found->place = at + i;
        found->a = a[i];
        found->b = b[i];
    }
    found->count += count;
    found->nonfinite += infinite;
    found->top = top > found->top ? top : found->top;
    found->ulp = ulp > found->ulp ? ulp : found->ulp;
    found->sum += sum;
    found->squares += squares;
}

/* Never inlined, so that its arithmetic stays between the changes of the environment below. */
static __attribute__((noinline)) void
gather(const void *a, int a_kind, const void *b, int b_kind, const void *mask, int mask_kind,
       int64_t n, struct found *found)
{
    word a_tile[TILE], b_tile[TILE], m[TILE];
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = n - at < TILE ? n - at : TILE;
        const word *x = values(a, a_kind, at, length, a_tile);
        const word *y = values(b, b_kind, at, length, b_tile);
        found->wrong |= wanted(mask, mask_kind, at, length, m);
        word unequal = 0, largest = 0, valid = 0;
        for (int64_t i = 0; i < length; i++) {
            word size_x = x[i] & ~SIGN & m[i], size_y = y[i] & ~SIGN & m[i];
            unequal |= (x[i] ^ y[i]) & m[i];
            word size = size_x > size_y ? size_x : size_y;
            largest = size > largest ? size : largest;
            valid += m[i] & 1;
        }
        found->valid += valid;
        if (unequal && largest < TAME)
            detail(x, y, m, length, at, 1, found);
        else if (unequal || largest > INFINITE)
            detail(x, y, m, length, at, 0, found);
    }
}

/* Add n positions; a kind is of `enum kind`. The thread may flush subnormals to zero: not here. */
void gather_statistics(const void *a, int a_kind, const void *b, int b_kind, const void *mask,
                       int mask_kind, int64_t n, struct found *found)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    gather(a, a_kind, b, b_kind, mask, mask_kind, n, found);
    fesetenv(&before);
}
