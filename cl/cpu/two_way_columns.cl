/* What the CPU's rows of two-way attention share: columns, ways of prompts, softmax over tokens and over image rows.
 * Needs cpu/tile.
 *
 * Column t * 8 + h belongs to token t and head h, so that a vector holds two tokens of all heads and a softmax over
 * tokens runs between vectors and vector halves. Columns come in blocks of 64, 8 tokens.
 *
 * -D BLOCKS: of 64 columns. -D SUB: image rows that are read together, a multiple of 6. */
#define HEADS  8
#define UNROLL __attribute__((opencl_unroll_hint)) /* short loops, which would stay loops */
#define CP     (BLOCKS * 64)

/* ways[n] of a prompt: 0 it sees the image by itself, 1 through projections that it shares. wanted: 1 + the only way
 * that a launch takes, or 0 for both. */
static inline bool skipped(__global const int *ways, int n, int wanted) {
    return wanted && ways[n] + 1 != wanted;
}

/* s becomes the softmax over tokens of its rows of `count` vectors: of two tokens by eight heads each. One token more,
 * whose weight is not asked for, scores `none`. */
static inline void softmax_vectors(float16 *s, const int count, float none) {
    for (int r = 0; r < TILE_ROWS; r++, s += CP / 16) {
        float16 m = (float16)(none);
        UNROLL for (int i = 0; i < count; i++) m = larger(m, s[i]);
        const float8 top = max(m.lo, m.hi);
        m = (float16)(top, top);
        float16 sum = (float16)(0.0f);
        const float8 rest = exp2_negative((float16)(none)-m).lo;
        UNROLL for (int i = 0; i < count; i++) {
            s[i] = exp2_negative(s[i] - m);
            sum += s[i];
        }
        const float8 inv = (float8)(1.0f) / (sum.lo + sum.hi + rest);
        UNROLL for (int i = 0; i < count; i++) s[i] *= (float16)(inv, inv);
    }
}
NOINLINE void softmax_tokens(float16 *s, int count, float none) {
    if (count == 3)
        softmax_vectors(s, 3, none);
    else if (count == 4)
        softmax_vectors(s, 4, none);
    else
        softmax_vectors(s, count, none);
}

/* Scores s of SUB rows, of which `rows` exist, become weights, `count` vectors of them; what was weighted before is to
 * be scaled by f. */
static inline void weigh_rows(float16 *top, float16 *total, float16 *f, float16 *s, int rows, int count) {
    for (int i = 0; i < count; i++) {
        float16 m = top[i], other = m, sum;
        for (int r = 0; r + 1 < rows; r += 2) { /* two, since one would wait for itself */
            m = larger(m, s[r * (CP / 16) + i]);
            other = larger(other, s[(r + 1) * (CP / 16) + i]);
        }
        m = larger(larger(m, other), s[(rows - 1) * (CP / 16) + i]);
        f[i] = exp2_negative(top[i] - m);
        sum = total[i] * f[i];
        for (int r = 0; r < rows; r++) {
            const float16 e = exp2_negative(s[r * (CP / 16) + i] - m);
            s[r * (CP / 16) + i] = e;
            sum += e;
        }
        for (int r = rows; r < SUB; r++) s[r * (CP / 16) + i] = (float16)(0.0f);
        top[i] = m;
        total[i] = sum;
    }
}
