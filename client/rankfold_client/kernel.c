/* The statistics of a comparison, in one pass over two arrays and a mask.
 *
 * Built with -DWIDE=0 to compare in float32 and with -DWIDE=1 in float64. What is unequal is
 * decided on bit patterns. A tile of equal values costs little more than reading it; one that
 * holds a mismatch, or comes after such a one, is looked at in detail.
 */
#include <fenv.h>
#include <stdint.h>
#include <string.h>

#if WIDE
typedef double real;
typedef uint64_t word;
typedef int64_t whole;
#define INFINITE ((word)0x7ff << 52)
#else
typedef float real;
typedef uint32_t word;
typedef int32_t whole;
#define INFINITE ((word)0xff << 23)
#endif

#define SIGN ((word)1 << (8 * sizeof(word) - 1))
/* The largest power of two; differences of values below it cannot overflow. */
#define TAME (INFINITE - (INFINITE & -INFINITE))
/* So many values that all of what is made of them stays in the first-level cache. */
#define TILE 512
/* Sums are added up side by side in so many lanes, in groups of 4 that the compiler need not find
 * and in an order that no machine's width changes. */
#define LANES 16
typedef double group __attribute__((vector_size(4 * sizeof(double))));

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
            valid += mask[i];                                                                   \
            tile[i] = -(word)mask[i];                                                           \
        }                                                                                       \
        found->wrong |= other != 0;                                                             \
    } while (0)
#define FLOATING(type, one)                                                                     \
    do {                                                                                        \
        const type *mask = (const type *)from + at;                                             \
        type other = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                       \
            type size = mask[i] & (type)((type)-1 >> 1);                                        \
            other |= (type)(size != 0) & (type)(size != (type)(one));                           \
            valid += size != 0;                                                                 \
            tile[i] = -(word)(size != 0);                                                       \
        }                                                                                       \
        found->wrong |= other != 0;                                                             \
    } while (0)

/* Fill the tile with all ones where a position counts and 0 elsewhere, and count those. */
static void wanted(const void *from, int kind, int64_t at, int64_t n, word *tile,
                   struct found *found)
{
    word valid = 0;
    switch (kind) {
    case BOOL:
    case INT8: WHOLE(uint8_t); break;
    case INT16: WHOLE(uint16_t); break;
    case INT32: WHOLE(uint32_t); break;
    case INT64: WHOLE(uint64_t); break;
    case BFLOAT16: FLOATING(uint16_t, 0x3f80); break;
    case FLOAT16: FLOATING(uint16_t, 0x3c00); break;
    case FLOAT32: FLOATING(uint32_t, 0x3f800000); break;
    case FLOAT64: FLOATING(uint64_t, (uint64_t)0x3ff << 52); break;
    default:
        memset(tile, 0xff, n * sizeof *tile);
        valid = n;
    }
    found->valid += valid;
}

/* Say whether no position of a tile differs, so that there is nothing to tell of it. */
static inline int alike(const word *a, const word *b, const word *mask, int64_t n)
{
    word unequal = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        word x = a[i] & ~SIGN & mask[i], y = b[i] & ~SIGN & mask[i], size = x > y ? x : y;
        unequal |= (a[i] ^ b[i]) & mask[i];
        largest = size > largest ? size : largest;
    }
    return !unequal && largest <= INFINITE;
}

/* Return the pattern of the distance where two values differ, else 0. Tame ones, of which every
 * difference is finite, differ exactly where it is not 0. */
static inline word distance(word a, word b, word mask, const int tame)
{
    word x = a & ~SIGN, y = b & ~SIGN;
    if (!tame)
        mask &= -(word)(((a != b) & ((x | y) != 0)) | (x > INFINITE));
    return word_of(real_of(a) - real_of(b)) & ~SIGN & mask;
}

/* Add up n distances; what follows them up to a multiple of LANES is overwritten. */
static inline void add_up(double *sizes, int64_t n, struct found *found)
{
    group sum[LANES / 4] = {0}, squares[LANES / 4] = {0}, some[LANES / 4];
    for (int64_t i = n; i % LANES; i++)
        sizes[i] = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        memcpy(some, sizes + i, sizeof some);
        for (int j = 0; j < LANES / 4; j++) {
            sum[j] += some[j];
            squares[j] += some[j] * some[j];
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        found->sum += sum[lane / 4][lane % 4];
        found->squares += squares[lane / 4][lane % 4];
    }
}

/* Add a tile and return whether anything differs in it; -1 where it was said to be tame and is
 * not, and nothing is added. */
static inline __attribute__((always_inline)) int
detail(const word *a, const word *b, const word *mask, int64_t n, int64_t at, const int tame,
       struct found *found)
{
    _Alignas(64) double sizes[TILE];
    word top = 0, ulp = 0, count = 0, infinite = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        word x = a[i] & ~SIGN & mask[i], y = b[i] & ~SIGN & mask[i];
        word d = distance(a[i], b[i], mask[i], tame);
        whole apart = x - y;
        word steps = (a[i] ^ b[i]) & SIGN ? x + y : (word)(apart < 0 ? -apart : apart);
        count += d != 0;
        largest = x > largest ? x : largest;
        largest = y > largest ? y : largest;
        if (!tame) {
            steps &= -(word)((d != 0) & (x < INFINITE) & (y < INFINITE));
            infinite += d >= INFINITE;
            d &= -(word)(d < INFINITE);
        }
        top = d > top ? d : top;
        ulp = steps > ulp ? steps : ulp;
        sizes[i] = real_of(d);
    }
    if (tame && largest >= TAME)
        return -1;
    if (!found->nonfinite && (infinite || top > found->top)) {
        word least = infinite ? INFINITE : top;
        int64_t i = 0;
        while (distance(a[i], b[i], mask[i], tame) < least)
            i++;
        found->place = at + i;
        found->a = a[i];
        found->b = b[i];
    }
    found->count += count;
    found->nonfinite += infinite;
    found->top = top > found->top ? top : found->top;
    found->ulp = ulp > found->ulp ? ulp : found->ulp;
    add_up(sizes, n, found);
    return count != 0;
}

/* Never inlined, so that its arithmetic stays between the changes of the environment below. */
static __attribute__((noinline)) void
gather(const void *a, int a_kind, const void *b, int b_kind, const void *mask, int mask_kind,
       int64_t n, struct found *found)
{
    _Alignas(64) word a_tile[TILE], b_tile[TILE], m[TILE];
    int differs = 0;
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = n - at < TILE ? n - at : TILE;
        const word *x = values(a, a_kind, at, length, a_tile);
        const word *y = values(b, b_kind, at, length, b_tile);
        wanted(mask, mask_kind, at, length, m, found);
        /* Where the last one differed, this one most likely does. */
        if (!differs && alike(x, y, m, length))
            continue;
        differs = detail(x, y, m, length, at, 1, found);
        if (differs < 0)
            differs = detail(x, y, m, length, at, 0, found);
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
