/* The norm of rows whose channels four work-items hold as fragments (behind nvidia/ptx), without scale and shift.
 *
 * NORMALISE(v, real): v[C / 32][4] are the words that this work-item has of a row, two halves each; they become the
 * normalised ones, zeros where not `real`. Uses the kernel's eps. */
#define NORMALISE(v, real)                                                                                             \
    do {                                                                                                               \
        float mean = 0.0f, square = 0.0f;                                                                              \
        UNROLL for (int k = 0; k < C / 32; k++) UNROLL for (int e = 0; e < 4; e++) {                                   \
            const float2 two = floats_of((v)[k][e]);                                                                   \
            mean += two.x + two.y;                                                                                     \
            square = fma(two.x, two.x, fma(two.y, two.y, square));                                                     \
        }                                                                                                              \
        QUAD_SUM(mean);                                                                                                \
        QUAD_SUM(square);                                                                                              \
        mean /= C;                                                                                                     \
        const float by = 1.0f / sqrt(fmax(square / C - mean * mean, 0.0f) + eps);                                      \
        UNROLL for (int k = 0; k < C / 32; k++) UNROLL for (int e = 0; e < 4; e++) {                                   \
            const float2 two = fma(floats_of((v)[k][e]), (float2)(by), (float2)(-mean * by));                          \
            (v)[k][e] = (real) ? halves_of(two.x, two.y) : 0u;                                                         \
        }                                                                                                              \
    } while (0)
