/* The front of nvidia/norm_mlp_wgmma with PROJECT, behind nvidia/spread: the map whose depthwise convolution z is was not
 * stored, but is a linear layer of x with a residual, P x + p + r, as behind attention. A group's 64 rows are a line of
 * the map; it makes that line and those above and below, so that each is made three times, which takes less than a
 * launch.
 *
 * Until the MLP's weights come, x lies where the first layer's will, the projection's weights and then its results where
 * the second layer's will. */
#define LINES   3
#define K_TILES ((C + 63) / 64)
#define MADE    W2 /* [LINES][64][PIECES] */
/* Channels that a warpgroup makes, whole 32, the second one from SECOND_FROM on: with 160 the two have 32 in common, so that the
 * code is the same for both. A kernel's first launch waits for its code. */
#if C == 160
#define CHANNELS 96
#define SECOND_FROM 64
#elif C == 128
#define CHANNELS 64
#define SECOND_FROM 64
#else
#define CHANNELS 32
#define SECOND_FROM 32
#endif

/* Asks for the projection's weights. */
#define COPY_PROJECTION()                                                                                              \
    do {                                                                                                               \
        for (int i = id; i < 10 * C / 4; i += THREADS) COPY16(shared + (TAPS + i) * 16, taps + i * 4, 16);             \
        for (int i = id; i < C * PIECES; i += THREADS) {                                                               \
            const int o = i / PIECES, piece = i % PIECES;                                                              \
            COPY16(shared + (W2 + piece / 8 * (C * 8) + o * 8 + (piece % 8 ^ (o & 7))) * 16, project + i, 16);         \
        }                                                                                                              \
    } while (0)
/* Asks for x of the lines, zeros beside the map: a group of copies each, the first with what was asked for before. */
#define COPY_LINES()                                                                                                   \
    for (int l = 0; l < LINES; l++) {                                                                                  \
        const int py = line - 1 + l, inside = (uint)py < (uint)arg.h ? 16 : 0;                                         \
        __global const half *from_line = x + (size_t)((item * arg.h + (inside ? py : line)) * 64) * arg.x_ld + arg.x_c0; \
        for (int i = id; i < 64 * PIECES; i += THREADS) {                                                              \
            const int px = i / PIECES, piece = i % PIECES;                                                             \
            COPY16(shared + ((l * K_TILES + piece / 8) * (64 * 8) + px * 8 + (piece % 8 ^ (px & 7))) * 16,             \
                   from_line + px * arg.x_ld + piece * 8, inside);                                                     \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    }

/* words[l][r]: rows row0 + 8 r of line l, channels from `first` on, of 32 eight in a row each: the residual, which becomes
 * the projection's result; zeros beside the map. */
#define FETCH_RESIDUAL(words, first)                                                                                   \
    UNROLL for (int l = 0; l < LINES; l++) UNROLL for (int r = 0; r < 2; r++)                                          \
        UNROLL for (int k = 0; k < CHANNELS / 32; k++) FETCH16(                                                        \
            (words)[l][r][k],                                                                                          \
            residual + (size_t)((item * arg.h + clamp(line - 1 + l, 0, arg.h - 1)) * 64 + row0 + 8 * r) * arg.r_ld +   \
                arg.r_c0 + (first) + k * 32 + t * 8)
#define PROJECT_LINE(words, l, first)                                                                                  \
    do {                                                                                                               \
        const matrix_at rows = from + (uint)((l)*K_TILES * (64 * 8)), w = from + (uint)(W2 + (first)*8);               \
        const uint inside = (uint)(line - 1 + (l)) < (uint)arg.h ? ~0u : 0;                                            \
        float s[CHANNELS / 8][4];                                                                                      \
        UNROLL for (int c = 0; c < CHANNELS / 8; c++) {                                                                \
            UNROLL for (int e = 0; e < 4; e++) s[c][e] = 0.0f;                                                         \
            GROUP_TAKE(s, c);                                                                                          \
        }                                                                                                              \
        GROUP_BEGIN();                                                                                                 \
        UNROLL for (int k = 0; k < C / 16; k++) GROUP_MULTIPLY(CHANNELS, s, rows + (uint)(k / 4 * (64 * 8) + k % 4 * 2), \
                                                               w + (uint)(k / 4 * (C * 8) + k % 4 * 2));               \
        GROUP_COMMIT();                                                                                                \
        GROUP_WAIT(0);                                                                                                 \
        UNROLL for (int c = 0; c < CHANNELS / 8; c++) GROUP_TAKE(s, c);                                                \
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int k = 0; k < CHANNELS / 32; k++)                              \
            UNROLL for (int e = 0; e < 4; e++) {                                                                       \
                const float2 b = *(__local const float2 *)(biases + HID + C + (first) + k * 32 + t * 8 + e * 2);       \
                const float2 v = floats_of((words)[l][r][k][e]) + b +                                                  \
                                 (float2)(s[4 * k + e][2 * r], s[4 * k + e][2 * r + 1]);                               \
                (words)[l][r][k][e] = halves_of(v.x, v.y) & inside;                                                    \
            }                                                                                                          \
    } while (0)
#define PUT_LINES(words, first)                                                                                        \
    UNROLL for (int l = 0; l < LINES; l++) UNROLL for (int r = 0; r < 2; r++)                                          \
        UNROLL for (int k = 0; k < CHANNELS / 32; k++) main[MADE + (l * 64 + row0 + 8 * r) * PIECES + (first) / 8 +    \
                                                              k * 4 + t] =                                             \
            (uint4)((words)[l][r][k][0], (words)[l][r][k][1], (words)[l][r][k][2], (words)[l][r][k][3])

/* z of ACROSS_Z pixels of the line from `px` on, channels [c, c + 8): as many as leave each work-item one part. */
#define ACROSS_Z 6
#define PARTS_Z  ((64 + ACROSS_Z - 1) / ACROSS_Z * PIECES)
#define EIGHT_TAPS(v, tap, c)                                                                                          \
    do {                                                                                                               \
        SHARED_LOAD((v), shared + (TAPS + ((tap)*C + (c)) / 4) * 16);                                                  \
        SHARED_LOAD((v) + 4, shared + (TAPS + ((tap)*C + (c)) / 4 + 1) * 16);                                          \
    } while (0)
#define Z_OF_LINES(to, px, c)                                                                                          \
    do {                                                                                                               \
        uint w[3][8];                                                                                                  \
        EIGHT_TAPS(w[0], 9, c);                                                                                        \
        UNROLL for (int i = 0; i < ACROSS_Z; i++) UNROLL for (int e = 0; e < 8; e++)(to)[i].f[e] = as_float(w[0][e]);  \
        _Pragma("unroll 1") for (int ky = 0; ky < 3; ky++) {                                                           \
            UNROLL for (int kx = 0; kx < 3; kx++) EIGHT_TAPS(w[kx], ky * 3 + kx, c);                                   \
            UNROLL for (int i = 0; i < ACROSS_Z + 2; i++) {                                                            \
                const bool in = (uint)((px) + i - 1) < 64u;                                                            \
                uint raw[4];                                                                                           \
                SHARED_LOAD(raw, shared + (MADE + (ky * 64 + (in ? (px) + i - 1 : 0)) * PIECES + (c) / 8) * 16);       \
                UNROLL for (int e = 0; e < 4; e++) raw[e] = in ? raw[e] : 0u;                                          \
                const eight v = eight_of(raw);                                                                         \
                UNROLL for (int kx = 0; kx < 3; kx++) if (i - kx >= 0 && i - kx < ACROSS_Z) {                          \
                    UNROLL for (int e = 0; e < 8; e++)(to)[i - kx].f[e] =                                              \
                        fma(v.f[e], as_float(w[kx][e]), (to)[i - kx].f[e]);                                            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
