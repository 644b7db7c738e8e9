/* What nvidia/norm_mlp_wgmma and nvidia/norm_mlp_wide have in common: the products of an MLP, o += W2 gelu(W1 a + b1), by
 * chunks of hidden channels of which a warpgroup has MINE. Behind nvidia/wgmma.
 *
 * The two warpgroups of a work-group take turns: while the products of one are under way, the other one makes its GELUs
 * and asks for weights. (GELUs behind products of the same warp hardly ran beside them, presumably since a warp that
 * starts products is held until most of those before are done.) Turn j multiplies W2 of chunk j - 1 and W1 of chunk j.
 *
 * A kernel defines CHUNKS, MINE, C (columns of o), BIAS_OF(j), where the biases of its channels of chunk j begin in
 * `biases`, and
 *   FIRST(u, j), SECOND(h, j)     u += a by W1, o += h by W2 of chunk j;
 *   COPY_CHUNK(j, first, count)   by work-items 0 <= first < count: asks for W1 of chunk j + 2 and W2 of chunk j + 1, if
 *                                 there are, into places of chunks that turn j - 1 multiplied; one group of copies. */
#ifdef IST_PTX
/* Until it is this warpgroup's turn; the turn goes to the other one. What either has seen of local memory the next
 * one sees. */
#define TURN_BEGIN(group) __asm__ volatile("bar.sync %0, 256;" ::"r"((group) + 1) : "memory")
#define TURN_GIVE(group)  __asm__ volatile("bar.arrive %0, 256;" ::"r"(2 - (group)) : "memory")
#else
#define TURN_BEGIN(group) barrier(CLK_LOCAL_MEM_FENCE)
#define TURN_GIVE(group)
#endif

#define BIASES(u, j)                                                                                                   \
    UNROLL for (int c = 0; c < MINE / 8; c++) {                                                                        \
        const float2 b = *(__local const float2 *)(biases + BIAS_OF(j) + c * 8 + 2 * t);                               \
        (u)[c][0] = (u)[c][2] = b.x;                                                                                   \
        (u)[c][1] = (u)[c][3] = b.y;                                                                                   \
        GROUP_TAKE(u, c);                                                                                              \
    }
#define GELUS(h, u)                                                                                                    \
    UNROLL for (int k = 0; k < MINE / 16; k++) {                                                                       \
        UNROLL for (int e = 0; e < 4; e++) {                                                                           \
            const float *two = (u)[2 * k + e / 2] + e % 2 * 2;                                                         \
            (h)[k][e] = halves_of(quick_gelu(two[0]), quick_gelu(two[1]));                                             \
        }                                                                                                              \
        GROUP_HOLD_WORDS((h)[k]);                                                                                      \
    }
#define PRODUCTS_END(u)                                                                                                \
    do {                                                                                                               \
        GROUP_WAIT(0);                                                                                                 \
        UNROLL for (int c = 0; c < MINE / 8; c++) GROUP_TAKE(u, c);                                                    \
        UNROLL for (int c = 0; c < C / 8; c++) GROUP_TAKE(o, c);                                                       \
    } while (0)
/* Products of turn j have been started. The next one's weights are there, which were asked for a turn ago; and the
 * second warpgroup, which knows that both have ended the turn before this one, asks for more. (Before its products it
 * would hold them up, and three turns ahead was no faster.) */
#define TURN_GOES(j)                                                                                                   \
    do {                                                                                                               \
        GROUP_COMMIT();                                                                                                \
        COPY_WAIT(0);                                                                                                  \
        GROUP_PUBLISH();                                                                                               \
        TURN_GIVE(group);                                                                                              \
        if (group) COPY_CHUNK(j, id - 128, 128);                                                                       \
    } while (0)

/* All of them, behind COPY_CHUNK of -2 and -1 by all work-items and a barrier behind which W1 of the first chunk is
 * there. */
#define MULTIPLY_CHUNKS()                                                                                              \
    do {                                                                                                               \
        float u[MINE / 8][4];                                                                                          \
        uint h[MINE / 16][4];                                                                                          \
        if (group) TURN_GIVE(group);                                                                                   \
        BIASES(u, 0);                                                                                                  \
        TURN_BEGIN(group);                                                                                             \
        GROUP_BEGIN();                                                                                                 \
        FIRST(u, 0);                                                                                                   \
        TURN_GOES(0);                                                                                                  \
        PRODUCTS_END(u);                                                                                               \
        GELUS(h, u);                                                                                                   \
        for (int j = 1; j < CHUNKS; j++) {                                                                             \
            BIASES(u, j);                                                                                              \
            TURN_BEGIN(group);                                                                                         \
            GROUP_BEGIN();                                                                                             \
            SECOND(h, j - 1);                                                                                          \
            FIRST(u, j);                                                                                               \
            TURN_GOES(j);                                                                                              \
            PRODUCTS_END(u);                                                                                           \
            GELUS(h, u);                                                                                               \
        }                                                                                                              \
        TURN_BEGIN(group);                                                                                             \
        GROUP_BEGIN();                                                                                                 \
        SECOND(h, CHUNKS - 1);                                                                                         \
        GROUP_COMMIT();                                                                                                \
        if (!group) TURN_GIVE(group);                                                                                  \
        PRODUCTS_END(u);                                                                                               \
    } while (0)
