/* Literals, runs and Huffman codes: see deflate_runs.h. Numbers of sections are RFC 1951's. */
#include "io/deflate_runs.h"

#include "io/flate.h"

#include <stdlib.h>
#include <string.h>

/* Codes of at most 12 bits, so that four literals fit the bit buffer's 56. */
enum {
    LITERALS = 286,
    LENGTHS = 29,
    END = 256,
    MOST_BITS = 12,
    META = 19,
    META_BITS = 7,
    LEAST_RUN = 4,
    MOST_RUN = 258
};

typedef struct run {
    uint32_t at; /* in the block */
    uint32_t length;
} run;

typedef struct code {
    uint16_t bits, length;
} code;

struct ist_runs {
    uint32_t adler;
    bool begun; /* the stream */
    uint64_t bits;
    int bit_count;                   /* below 8 between blocks */
    uint8_t symbol_of[MOST_RUN + 1]; /* length -> symbol - 257 */
    code literals[LITERALS];
    run runs[IST_RUNS_BLOCK / LEAST_RUN];
};

/* 3.2.5 */
static const uint16_t length_base[LENGTHS] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                              31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[LENGTHS] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};

ist_runs *ist_runs_open(void) {
    ist_runs *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    for (int s = 0; s < LENGTHS; s++)
        for (int n = length_base[s]; n <= MOST_RUN; n++) r->symbol_of[n] = (uint8_t)s;
    return r;
}

void ist_runs_close(ist_runs **runs) {
    free(*runs);
    *runs = NULL;
}

/* ---- Huffman codes ---- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Replaces n >= 2 rising weights by the lengths of their codes (Moffat and Katajainen 1995, in place). */
static void minimum_redundancy(uint32_t *a, int n) {
    int root = 0, leaf = 2;
    a[0] += a[1];
    for (int next = 1; next < n - 1; next++) {
        if (leaf >= n || a[root] < a[leaf])
            a[next] = a[root], a[root++] = (uint32_t)next;
        else
            a[next] = a[leaf++];
        if (leaf >= n || (root < next && a[root] < a[leaf]))
            a[next] += a[root], a[root++] = (uint32_t)next;
        else
            a[next] += a[leaf++];
    }
    a[n - 2] = 0;
    for (int next = n - 3; next >= 0; next--) a[next] = a[a[next]] + 1;
    int available = 1, used = 0, next = n - 1;
    uint32_t depth = 0;
    for (root = n - 2; available > 0; depth++, available = 2 * used, used = 0) {
        for (; root >= 0 && a[root] == depth; root--) used++;
        for (; available > used; available--) a[next--] = depth;
    }
}

/* Moves codes longer than `most` there, and others down until the lengths are those of a tree again. */
static void shorten(int *of_length, int longest, int most) {
    long room = 0; /* what the codes take, in units of the longest code's */
    for (int l = most + 1; l <= longest; l++) of_length[most] += of_length[l];
    for (int l = 1; l <= most; l++) room += (long)of_length[l] << (most - l);
    for (; room > 1L << most; room--) {
        int l = most - 1;
        while (!of_length[l]) l--;
        of_length[most]--;
        of_length[l]--;
        of_length[l + 1] += 2;
    }
}

/* Lengths of the codes of `count` symbols, 0 for those of weight 0; two symbols at least have a weight. */
static void code_lengths(const uint32_t *weights, int count, int most, code *codes) {
    enum { SYMBOL_BITS = 9 };
    uint32_t order[LITERALS], lengths[LITERALS];
    int n = 0, of_length[64] = {0};
    for (int s = 0; s < count; s++) {
        codes[s].length = 0;
        if (weights[s]) order[n++] = weights[s] << SYMBOL_BITS | (uint32_t)s;
    }
    qsort(order, (size_t)n, sizeof *order, by_value);
    for (int i = 0; i < n; i++) lengths[i] = order[i] >> SYMBOL_BITS;
    minimum_redundancy(lengths, n);
    for (int i = 0; i < n; i++) of_length[lengths[i]]++;
    shorten(of_length, (int)lengths[0], most);
    for (int l = most, i = 0; l > 0; l--)
        for (int k = 0; k < of_length[l]; k++) codes[order[i++] & ((1u << SYMBOL_BITS) - 1)].length = (uint16_t)l;
}

/* 3.2.2, with the bits of each code reversed: the first one is written first. */
static void assign_codes(code *codes, int count) {
    unsigned next[MOST_BITS + 2] = {0}, of_length[MOST_BITS + 1] = {0};
    for (int s = 0; s < count; s++) of_length[codes[s].length]++;
    of_length[0] = 0;
    for (int l = 1; l <= MOST_BITS; l++) next[l + 1] = (next[l] + of_length[l]) << 1;
    for (int s = 0; s < count; s++) {
        unsigned value = next[codes[s].length]++, reversed = 0;
        for (int i = 0; i < codes[s].length; i++) reversed |= (value >> i & 1) << (codes[s].length - 1 - i);
        codes[s].bits = (uint16_t)reversed;
    }
}

static void make_codes(const uint32_t *weights, int count, int most, code *codes) {
    code_lengths(weights, count, most, codes);
    assign_codes(codes, count);
}

/* ---- bits ---- */

typedef struct sink {
    uint64_t bits;
    int count;
    uint8_t *to;
} sink;

static inline void add(sink *s, uint64_t bits, int count) {
    s->bits |= bits << s->count;
    s->count += count;
}

/* For less than 64 bits; leaves less than 8. Writes up to 8 bytes beyond what counts. */
static inline void flush(sink *s) {
    for (int i = 0; i < 8; i++) s->to[i] = (uint8_t)(s->bits >> 8 * i); /* one store where the host is little-endian */
    s->to += s->count >> 3;
    s->bits >>= s->count & ~7;
    s->count &= 7;
}

static inline void add_code(sink *s, const code *c) {
    add(s, c->bits, c->length);
}

/* ---- a block ---- */

/* Lengths of the codes as symbols of the meta code: 0 to 15 as they are, 16 repeats the last one, 17 and 18 zeros
 * (3.2.7). */
typedef struct meta_list {
    uint8_t symbol[LITERALS + 1], extra[LITERALS + 1];
    int count;
} meta_list;

static void add_meta(meta_list *m, int symbol, int extra) {
    m->symbol[m->count] = (uint8_t)symbol;
    m->extra[m->count++] = (uint8_t)extra;
}

static void list_lengths(const uint8_t *lengths, int count, meta_list *m) {
    for (int i = 0; i < count;) {
        int value = lengths[i], same = 1;
        while (i + same < count && lengths[i + same] == value) same++;
        i += same;
        if (value) add_meta(m, value, 0), same--;
        while (same > 0) {
            int most = value ? 6 : same > 10 ? 138 : 10, n = same < most ? same : most;
            if (n < 3) {
                for (; n; n--, same--) add_meta(m, value, 0);
                continue;
            }
            add_meta(m, value ? 16 : most == 138 ? 18 : 17, n - (most == 138 ? 11 : 3));
            same -= n;
        }
    }
}

/* The block's head with its codes; the one distance there is has a code of one bit. */
static void put_head(sink *s, const code *literals, bool last) {
    static const uint8_t order[META] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + 1];
    uint32_t weights[META] = {0};
    code meta[META];
    meta_list list = {.count = 0};
    int used = LITERALS, metas = META;
    while (!literals[used - 1].length) used--;
    for (int i = 0; i < used; i++) lengths[i] = (uint8_t)literals[i].length;
    lengths[used] = 1;
    list_lengths(lengths, used + 1, &list);
    for (int i = 0; i < list.count; i++) weights[list.symbol[i]]++;
    make_codes(weights, META, META_BITS, meta);
    while (!meta[order[metas - 1]].length) metas--;
    add(s, last, 1);
    add(s, 2, 2);
    add(s, (uint64_t)used - 257, 5);
    add(s, 0, 5);
    add(s, (uint64_t)metas - 4, 4);
    flush(s);
    for (int i = 0; i < metas; i++) {
        add(s, meta[order[i]].length, 3);
        flush(s);
    }
    for (int i = 0; i < list.count; i++) {
        int symbol = list.symbol[i];
        add_code(s, &meta[symbol]);
        if (symbol > 15) add(s, list.extra[i], symbol == 16 ? 2 : symbol == 17 ? 3 : 7);
        flush(s);
    }
}

static inline uint32_t load4(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Finds the runs of a block, and how often each literal and length occurs. */
static size_t find_runs(ist_runs *r, const uint8_t *p, size_t count, uint32_t weights[LITERALS]) {
    uint32_t even[256] = {0}, odd[256] = {0}; /* two, since the same literal often follows itself */
    size_t found = 0, i = 0;
    memset(weights, 0, LITERALS * sizeof *weights);
    if (count) even[p[i++]]++; /* a run that comes from the block before begins one byte late */
    while (i + LEAST_RUN <= count) {
        if (load4(p + i) != load4(p + i - 1)) {
            (i & 1 ? odd : even)[p[i]]++;
            i++;
            continue;
        }
        size_t end = i + LEAST_RUN, most = count - i < MOST_RUN ? count : i + MOST_RUN;
        while (end < most && p[end] == p[i]) end++;
        r->runs[found++] = (run){(uint32_t)i, (uint32_t)(end - i)};
        weights[END + 1 + r->symbol_of[end - i]]++;
        i = end;
    }
    for (; i < count; i++) even[p[i]]++;
    for (int s = 0; s < 256; s++) weights[s] = even[s] + odd[s];
    weights[END] = 1;
    return found;
}

static void put_literals(sink *s, const code *codes, const uint8_t *p, size_t count) {
    for (; count >= 4; count -= 4, p += 4) {
        for (int i = 0; i < 4; i++) add_code(s, &codes[p[i]]);
        flush(s);
    }
    for (; count; count--) add_code(s, &codes[*p++]);
    flush(s);
}

static void put_run(sink *s, const ist_runs *r, uint32_t length) {
    int symbol = r->symbol_of[length];
    add_code(s, &r->literals[END + 1 + symbol]);
    add(s, length - length_base[symbol], length_extra[symbol]);
    add(s, 0, 1); /* distance 1 */
    flush(s);
}

size_t ist_runs_put(ist_runs *r, const uint8_t *bytes, size_t count, bool last, uint8_t *to) {
    uint32_t weights[LITERALS];
    size_t at = 0, found = find_runs(r, bytes, count, weights);
    sink s = {r->bits, r->bit_count, to};
    if (!r->begun) { /* RFC 1950: deflate with a window of 32 KiB, fastest */
        add(&s, 0x0178, 16);
        r->adler = ist_adler32(1, NULL, 0);
    }
    make_codes(weights, LITERALS, MOST_BITS, r->literals);
    put_head(&s, r->literals, last);
    for (size_t k = 0; k < found; k++) {
        put_literals(&s, r->literals, bytes + at, r->runs[k].at - at);
        put_run(&s, r, r->runs[k].length);
        at = r->runs[k].at + r->runs[k].length;
    }
    put_literals(&s, r->literals, bytes + at, count - at);
    add_code(&s, &r->literals[END]);
    flush(&s);
    r->adler = ist_adler32(r->adler, bytes, count);
    r->begun = !last;
    if (last) {
        add(&s, 0, -s.count & 7);
        flush(&s);
        for (int i = 24; i >= 0; i -= 8) add(&s, r->adler >> i & 255, 8);
        flush(&s);
        s.bits = 0;
    }
    r->bits = s.bits;
    r->bit_count = s.count;
    return (size_t)(s.to - to);
}
