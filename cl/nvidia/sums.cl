/* What is done with sums of matrix instructions while they are in registers (behind nvidia/ptx): s[c][4] are rows g and
 * g + 8, g = lane / 4, of columns 8 c + 2 t and the next, t = lane % 4; those of mma.sync and of wgmma alike.
 *
 * SOFTMAX_OF_TOKENS(s, columns, a): scores of `columns`, at most 64, eight heads' for each token, become weights,
 * softmax over tokens, as a[4][4] for the next product.
 * SOFTMAX_GOES_ON(top, most, sum, factor, unit): a row's keys come in turns. top[2], this work-item's largest score of
 * the turn, becomes the row's so far, as SOFTMAX_WEIGHTS wants it; most[2] keeps that for the next turn, factor[2] is
 * what earlier turns' sums are worth now. sum[2] stays each work-item's share.
 * SOFTMAX_WEIGHTS(p, s, at, top, sum, unit): scores of columns 8 `at` to 8 `at` + 15 become weights, p[4] for the next
 * product.
 * CENTRE_ROWS(u, blocks, eps, scale): rows of 8 `blocks` columns lose their mean, scale[2] becomes what divides by
 * their deviation. Four work-items share a row. */
#define SOFTMAX_OF_TOKENS(s, columns, a)                                                                               \
    do {                                                                                                               \
        float most[4], sum[4];                                                                                         \
        UNROLL for (int e = 0; e < 4; e++) {                                                                           \
            most[e] = (s)[0][e];                                                                                       \
            sum[e] = 0.0f;                                                                                             \
        }                                                                                                              \
        UNROLL for (int c = 1; c < 8; c++)                                                                             \
            UNROLL for (int e = 0; e < 4; e++) most[e] = c * 8 < (columns) ? fmax(most[e], (s)[c][e]) : most[e];       \
        UNROLL for (int c = 0; c < 8; c++)                                                                             \
            UNROLL for (int e = 0; e < 4; e++) {                                                                       \
                (s)[c][e] = c * 8 < (columns) ? quick_exp2((s)[c][e] - most[e]) : 0.0f;                                \
                sum[e] += (s)[c][e];                                                                                   \
            }                                                                                                          \
        UNROLL for (int e = 0; e < 4; e++) sum[e] = quick_reciprocal(sum[e]);                                          \
        UNROLL for (int c = 0; c < 8; c++) {                                                                           \
            (a)[c / 2][c % 2 * 2] = halves_of((s)[c][0] * sum[0], (s)[c][1] * sum[1]);                                 \
            (a)[c / 2][c % 2 * 2 + 1] = halves_of((s)[c][2] * sum[2], (s)[c][3] * sum[3]);                             \
        }                                                                                                              \
    } while (0)

#define SOFTMAX_GOES_ON(top, most, sum, factor, unit)                                                                  \
    UNROLL for (int r = 0; r < 2; r++) {                                                                               \
        QUAD_MOST((top)[r]);                                                                                           \
        (top)[r] = fmax((most)[r], (top)[r]);                                                                          \
        (factor)[r] = quick_exp2(fmax((most)[r] - (top)[r], -1.0e4f) * (unit));                                        \
        (most)[r] = (top)[r];                                                                                          \
        (top)[r] *= (unit);                                                                                            \
        (sum)[r] *= (factor)[r];                                                                                       \
    }

#define SOFTMAX_WEIGHTS(p, s, at, top, sum, unit)                                                                      \
    UNROLL for (int c = 0; c < 2; c++) {                                                                               \
        float f[4];                                                                                                    \
        UNROLL for (int e = 0; e < 4; e++) {                                                                           \
            f[e] = quick_exp2(fma((s)[(at) + c][e], unit, -(top)[e / 2]));                                             \
            (sum)[e / 2] += f[e];                                                                                      \
        }                                                                                                              \
        (p)[2 * c] = halves_of(f[0], f[1]);                                                                            \
        (p)[2 * c + 1] = halves_of(f[2], f[3]);                                                                        \
    }

#define CENTRE_ROWS(u, blocks, eps, scale)                                                                             \
    do {                                                                                                               \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            float mean = 0.0f, square = 0.0f;                                                                          \
            UNROLL for (int c = 0; c < (blocks); c++) mean += (u)[c][2 * r] + (u)[c][2 * r + 1];                       \
            QUAD_SUM(mean);                                                                                            \
            mean /= 8 * (blocks);                                                                                      \
            UNROLL for (int c = 0; c < (blocks); c++) {                                                                \
                (u)[c][2 * r] -= mean;                                                                                 \
                (u)[c][2 * r + 1] -= mean;                                                                             \
                square = fma((u)[c][2 * r], (u)[c][2 * r], fma((u)[c][2 * r + 1], (u)[c][2 * r + 1], square));         \
            }                                                                                                          \
            QUAD_SUM(square);                                                                                          \
            (scale)[r] = 1.0f / sqrt(square / (8 * (blocks)) + (eps));                                                 \
        }                                                                                                              \
    } while (0)
