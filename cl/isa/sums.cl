/* What is done with sums of matrix instructions while they are in registers (behind isa/ptx): s[c][4] are rows g and
 * g + 8, g = lane / 4, of columns 8 c + 2 t and the next, t = lane % 4; those of mma.sync and of wgmma alike.
 *
 * SOFTMAX_OF_TOKENS(s, columns, a): scores of `columns`, at most 64, eight heads' for each token, become weights,
 * softmax over tokens, as a[4][4] for the next product.
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

#define CENTRE_ROWS(u, blocks, eps, scale)                                                                             \
    do {                                                                                                               \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            float sum = 0.0f, square = 0.0f, other;                                                                    \
            UNROLL for (int c = 0; c < (blocks); c++) sum += (u)[c][2 * r] + (u)[c][2 * r + 1];                        \
            LANE_XOR(other, sum, 1);                                                                                   \
            sum += other;                                                                                              \
            LANE_XOR(other, sum, 2);                                                                                   \
            const float mean = (sum + other) / (8 * (blocks));                                                         \
            UNROLL for (int c = 0; c < (blocks); c++) {                                                                \
                (u)[c][2 * r] -= mean;                                                                                 \
                (u)[c][2 * r + 1] -= mean;                                                                             \
                square = fma((u)[c][2 * r], (u)[c][2 * r], fma((u)[c][2 * r + 1], (u)[c][2 * r + 1], square));         \
            }                                                                                                          \
            LANE_XOR(other, square, 1);                                                                                \
            square += other;                                                                                           \
            LANE_XOR(other, square, 2);                                                                                \
            (scale)[r] = 1.0f / sqrt((square + other) / (8 * (blocks)) + (eps));                                       \
        }                                                                                                              \
    } while (0)
