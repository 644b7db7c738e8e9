/* TinyViT's patch embedding for CPUs: z = conv 3x3(gelu(conv 3x3(image))), both with stride 2 and padding 1, 3 -> 32
 * -> 64 channels, in one launch. A group makes pairs of output lines, mostly one below the other, and keeps what it needs of
 * the map between in its part of `scratch`, which stays in its second-level cache. One work-item per group, needs
 * cpu/tile, cpu/repeated_rows.
 *
 * Of the second filter's three taps along a line, the outer two are a filter of two taps on every other value, of which
 * two outputs take three products for four (F(2, 2)); the middle one has the values between for itself. With inputs v
 * and taps w, outputs 2b and 2b + 1 (v from the one left of 4b on):
 *   y0 = (v0 - v2) w0 + v1 w1 + v2 (w0 + w2)       y1 = (v4 - v2) w2 + v3 w1 + v2 (w0 + w2)
 * Along lines and down columns that makes 25 products of 32 channels for the 36 of 2x2 outputs.
 *
 * A line of the map is kept as blocks of what two outputs see: BLOCK floats {v0 - v2, v1, v2, v4 - v2, v3}, 32 channels
 * each. Of the lines, of which a pair of output lines needs five, differences are made too; the lower one is v2 - v4, and
 * its weights are negated.
 *
 * Pairs of output lines that are alike are made once by a group, and copied.
 *
 * Weights par: the first filter as [ky][kx][in][32], 32 biases; the second one's biases as a tile and a tile of zeros;
 * its parts in the order in which `products` takes them, each [line][block's part][in][64]. */
#define MID   32
#define OUT   64
#define BLOCK (5 * MID)
#define TILE  (TILE_ROWS * OUT)    /* floats of sums of six blocks */
#define FIRST 12                   /* pixels of the map at a time: three blocks */
#define STEP  6                    /* floats of the image between their windows */
#define AHEAD 16                   /* floats of zeros in front of a line of the image, of which the last pixel is seen */
#define RUN   11                   /* tiles that share what it costs to fetch weights */
#define BIAS1 (27 * MID)
#define BIAS2 (BIAS1 + MID)
#define NONE  (BIAS2 + TILE)
#define PARTS (NONE + TILE)

typedef __global const float *weights_t;
typedef __global float *line_t;

#define EACH12(F)     F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define FIRST_OPEN(r)  float16 c##r = vload16(0, par + BIAS1), d##r = vload16(1, par + BIAS1);
#define FIRST_CLOSE(r) to[2 * r] = c##r, to[2 * r + 1] = d##r;
#define FIRST_MAC(r)                                                                                                   \
    {                                                                                                                  \
        const float16 v = (float16)(a[r * STEP + i]);                                                                  \
        c##r = fma(v, b0, c##r);                                                                                       \
        d##r = fma(v, b1, d##r);                                                                                       \
    }
/* Twelve pixels of the map, before their activation, from three lines of the image. */
NOINLINE void first_sums(float16 *to, weights_t above, weights_t at, weights_t below, weights_t par) {
    weights_t w = par;
    EACH12(FIRST_OPEN)
    for (int l = 0; l < 3; l++) {
        const weights_t a = l == 0 ? above : l == 1 ? at : below;
        for (int i = 0; i < 9; i++, w += MID) {
            const float16 b0 = vload16(0, w), b1 = vload16(1, w);
            EACH12(FIRST_MAC)
        }
    }
    EACH12(FIRST_CLOSE)
}

/* `count` zeros. */
NOINLINE void clear(line_t to, int count) {
    for (int i = 0; i < count; i++) to[i] = 0.0f;
}

/* Line iy of image n behind its zeros; `length` floats, of which those around the line are zeros already. */
NOINLINE void image_line(line_t to, __global const T *x, int n, int iy, int h, int w, int length) {
    const int count = w * 3;
    if (iy < 0 || iy >= h) {
        clear(to, length);
        return;
    }
    int i = 0;
    x += ((size_t)n * h + iy) * count;
    for (to += AHEAD; i + 16 <= count; i += 16) vstore16(LOAD16(x, i), 0, to + i);
    for (; i < count; i++) to[i] = LOAD(x, i);
}

/* Three blocks of a line from twelve pixels and, in front of them, the one to their left. Where `apart` is one: the
 * line `from` without this one. */
static inline void put_blocks(line_t to, weights_t from, line_t apart, const float16 *p) {
    for (int b = 0; b < FIRST / 4; b++, p += 8)
        for (int i = 0; i < 2; i++) {
            const float16 two = p[4 + i];
            const float16 parts[5] = {p[i] - two, p[2 + i], two, p[8 + i] - two, p[6 + i]};
            for (int k = 0; k < 5; k++) {
                const int at = b * BLOCK + k * MID + i * 16;
                vstore16(parts[k], 0, to + at);
                if (apart) vstore16(vload16(0, from + at) - parts[k], 0, apart + at);
            }
        }
}

/* A line of the map, `tiles` times twelve pixels of which `width` are inside; asks for the two lines of the image that
 * the next one needs. */
NOINLINE void map_line(line_t to, weights_t from, line_t apart, weights_t above, weights_t at, weights_t below,
                       weights_t par, int tiles, int width, __global const T *next) {
    float16 pixels[2 * FIRST + 2];
    pixels[0] = pixels[1] = (float16)(0.0f);
    for (int t = 0; t < tiles; t++, next += 2 * STEP * FIRST) {
        const int x = t * STEP * FIRST, block = t * (FIRST / 4) * BLOCK;
        if (t * FIRST < width) {
            for (int i = 0; i < 2 * STEP * FIRST; i += 64 / sizeof(T)) PREFETCH_L2(next + i);
            first_sums(pixels + 2, above + x, at + x, below + x, par);
            activate_all(pixels + 2, 2 * FIRST, ACT_GELU);
        }
        for (int i = max(width - t * FIRST, 0); i < FIRST; i++)
            pixels[2 + 2 * i] = pixels[3 + 2 * i] = (float16)(0.0f);
        put_blocks(to + block, from + block, apart ? apart + block : 0, pixels);
        pixels[0] = pixels[2 * FIRST];
        pixels[1] = pixels[2 * FIRST + 1];
    }
}

#define SUM_OPEN(r, j)  float16 c##r##_##j = vload16(r * 4 + j, from) + vload16(r * 4 + j, more);
#define SUM_CLOSE(r, j) vstore16(c##r##_##j, r * 4 + j, to);
/* A tile: to = from + more + products of k values of six blocks each of one line, and of the one below where `lines` is
 * two, with weights w [line][k][64]. */
NOINLINE void sums(line_t to, weights_t from, weights_t more, weights_t a, weights_t below, weights_t w, int k,
                   int lines) {
    enum { lda = BLOCK, ldb = OUT };
    TILE_EACH(SUM_OPEN)
    for (; lines > 0; lines--, a = below)
        for (int i = 0; i < k; i += 2, a += 2, w += 2 * OUT) {
            weights_t b = w;
            TILE_STEP(0)
            TILE_STEP(1)
        }
    TILE_EACH(SUM_CLOSE)
}

/* Where a pair's lines are: differences, the lines between them, and the one that was subtracted. */
typedef struct {
    line_t apart[2], between[2], both, acc;
} lines_t;

/* `count` tiles from block `first` on of output lines y0 and y0 + 1 of an image. Parts: the common line's, then both
 * others' products with common columns, then all others. */
NOINLINE void products(const lines_t *l, weights_t par, int first, int count, __global T *y, int y0,
                       const cpu_patch_args arg) {
    weights_t w = par + PARTS;
    const line_t result = l->acc + RUN * 5 * TILE;
    for (int part = 0; part < 9; part++) {
        const int row = part < 3 ? 2 : part < 5 ? part - 3 : (part - 5) / 2;
        const int column = part < 3 ? (part + 2) % 3 : part < 5 ? 2 : (part - 5) % 2;
        const int k = column == 2 ? MID : 2 * MID, lines = row == 2 ? 1 : 2;
        const int at = first * BLOCK + (column == 0 ? 0 : column == 1 ? 3 * MID : 2 * MID);
        const weights_t a = (row == 2 ? l->both : l->apart[row]) + at, below = l->between[row & 1] + at;
        for (int t = 0; t < count; t++) {
            const line_t acc = l->acc + t * 5 * TILE;
            const weights_t from = part == 0  ? par + BIAS2
                                   : part < 3 ? acc
                                   : part < 5 ? par + NONE
                                              : acc + (1 + column) * TILE;
            sums(part < 5 ? acc + part * TILE : result, from, part < 5 ? par + NONE : acc + (3 + row) * TILE,
                 a + t * TILE_ROWS * BLOCK, below + t * TILE_ROWS * BLOCK, w, k, lines);
            for (int r = 0; r < TILE_ROWS && part >= 5 && y0 + row < arg.y_h; r++) {
                const int x = 2 * (first + t * TILE_ROWS + r) + column;
                __global T *to = y + (size_t)(row * arg.y_w + x) * arg.y_ld;
                for (int i = 0; i < 4 && x < arg.y_w; i++) STORE16(vload16(r * 4 + i, result), to, i * 16);
            }
        }
        w += lines * k * OUT;
    }
}

/* The image is dense. Scratch: three lines of the image, six of the map, of as many blocks as tiles see, five tiles of
 * sums for each of a run, and one. content: see cpu/repeated_rows. Pairs are shared out by `queue` (see prelude). */
NOINLINE void patch_group(__global T *restrict y, __global const T *restrict x, __global float *restrict scratch,
                          __global const float *restrict par, __global const int *restrict limit,
                          __global const int *restrict content, const cpu_patch_args arg, __global int *queue,
                          const int4 group) {
    const int line_room = arg.line_room, pairs = arg.pairs;
    const int blocks = (arg.y_w + 1) >> 1, tiles = (blocks + TILE_ROWS - 1) / TILE_ROWS;
    const int firsts = (blocks + FIRST / 4 - 1) / (FIRST / 4), length = tiles * TILE_ROWS * BLOCK;
    const line_t images = scratch + (size_t)group.x * arg.group_room, maps = images + 3 * line_room;
    lines_t l = {{maps, maps + length}, {maps + 2 * length, maps + 3 * length}, maps + 4 * length, maps + 6 * length};
    line_t last = maps + 5 * length;
    int next = 0, line = 0; /* of the image, of the map */
    work_t w = work_begin(group.w, min(arg.items, *limit) * pairs, false);
    __global const T *copied = y;
    for (int item, before = -2, like = -1 /* the image of `copied` */; (item = work_next(&w, queue)) >= 0;) {
        const int n = item / pairs, pair = item - n * pairs;
        const int2 same = alike_rows(content, arg.same, n);
        const bool is_alike = 2 * pair >= same.x && 2 * pair + 2 <= same.y;
        __global T *rows = y + ((size_t)n * arg.y_h + 2 * pair) * arg.y_w * arg.y_ld + arg.y_c0;
        if (is_alike && like == n) {
            copy_pixels(rows, copied, 2 * arg.y_w, arg.y_ld, OUT);
            continue;
        }
        if (before == -2) {
            clear(images, 3 * line_room);
            for (int i = 0; i < 6; i++)
                clear(maps + i * length + firsts * 3 * BLOCK, length - firsts * 3 * BLOCK);
        }
        if (item != before + 1 || pair == 0) {
            line = 4 * pair - 1;
            next = 2 * line - 1;
        } else {
            const line_t zero = l.apart[0];
            l.apart[0] = last;
            last = zero;
        }
        for (; line < 4 * pair + 4; line++) {
            const int i = line - 4 * pair;
            const line_t to = i < 0 ? l.apart[0] : i == 1 ? l.both : i == 3 ? last : l.between[i >> 1];
            const bool inside = line >= 0 && line < arg.mid_h;
            const line_t seen = images + AHEAD - 3;
            for (next = max(next, 2 * line - 1); inside && next <= 2 * line + 1; next++)
                image_line(images + (next + 3) % 3 * line_room, x, n, next, arg.x_h, arg.x_w, line_room);
            map_line(to, i == 1 ? l.apart[0] : l.both, i == 1 || i == 3 ? l.apart[i >> 1] : 0,
                     seen + (2 * line + 5) % 3 * line_room, seen + (2 * line + 3) % 3 * line_room,
                     seen + (2 * line + 4) % 3 * line_room, par, firsts, inside ? arg.mid_w : 0,
                     x + ((size_t)n * arg.x_h + next) * arg.x_w * 3);
        }
        for (int t = 0; t < tiles; t += RUN) products(&l, par, t * TILE_ROWS, min(RUN, tiles - t), rows, 2 * pair, arg);
        before = item;
        if (is_alike) {
            copied = rows;
            like = n;
        }
    }
    work_end(&w, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
patch(__global T *restrict y, __global const T *restrict x, __global float *restrict scratch,
      __global const float *restrict par, __global const int *restrict limit, __global const int *restrict content,
      cpu_patch_args arg, __global int *queue) {
    patch_group(y, x, scratch, par, limit, content, arg, queue, THIS_GROUP);
}
