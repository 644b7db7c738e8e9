/* What the steps of a sequence on matrix instructions (nvidia/sequence) do row by row, behind nvidia/ptx, codes/tape and
 * portable/distribution. -D SLOTS, DATA, HALVES, STEPS, SPLIT and MAIL: see there. */
#ifndef HALVES
#define HALVES 0
#endif
#ifndef STEPS
#define STEPS 32
#endif
#ifndef SPLIT
#define SPLIT 1
#define MAIL  0
#endif
#define ITEMS  256
#define ROWS   8
#define LOADS  4 /* at the beginning of a sequence, together, by registers */
#define ROUND  (SPLIT > 1 ? 3 : 4) /* points whose pixels a lane asks for together */
/* Which row is a matrix instruction's column: those of neighbouring columns differ by 16 banks, those of every other
 * column by 8, so that neither who reads 16 bytes of each row nor who writes 8 has to wait. */
#define ROW_OF(column) ((column) % 2 ? (column) / 2 + 2 : (column) / 2 + (column) / 4 * 4)

#if DATA
#define TABLE __local
#else
#define TABLE __global
#endif

/* Channel c of row r. */
#define AT(slot, c, r)     (((__local float *)m)[(r) * SLOTS + (slot) + (c)])
#define AT_INT(slot, c, r) (((__local int *)m)[(r) * SLOTS + (slot) + (c)])
/* Four from a multiple of four on. */
#define AT4(slot, c, r)    (*(__local float4 *)&AT(slot, c, r))
#define AT2(slot, c, r)    (*(__local float2 *)&AT(slot, c, r)) /* two from an even one on */
#define FLOATS_AT(p, i)    (*(TABLE const float4 *)((p) + (i)))
/* The same channels as halves, behind the floats: of a linear layer's inputs eight from a multiple of eight on. What
 * steps make goes to both. */
#if HALVES
#define HALVES_AT(c, r)      ((__local half *)(m + SLOTS * ROWS / 4) + (r) * HALVES + (c))
#define HALVES8(slot, c, r)  (*(__local uint4 *)HALVES_AT((slot) + (c), r))
#define PUT_HALF(c, r, v)    (*(__local ushort *)HALVES_AT(c, r) = (ushort)halves_of(v, 0.0f))
#define PUT_HALVES2(c, r, v) (*(__local uint *)HALVES_AT(c, r) = halves_of((v).x, (v).y))
#define PUT_HALVES4(c, r, v)                                                                                           \
    (*(__local uint2 *)HALVES_AT(c, r) = (uint2)(halves_of((v).x, (v).y), halves_of((v).z, (v).w)))
#define WHOLE_HALVES(flags)  (((flags) & (WHOLE | EXACT)) == WHOLE)
#else
#define PUT_HALF(c, r, v)
#define PUT_HALVES2(c, r, v)
#define PUT_HALVES4(c, r, v)
#define WHOLE_HALVES(flags)  0
#endif
#define PUT(slot, c, r, v)                                                                                             \
    do {                                                                                                               \
        const float put = (v);                                                                                         \
        AT(slot, c, r) = put;                                                                                          \
        PUT_HALF((slot) + (c), r, put);                                                                                \
    } while (0)
#define PUT4(slot, c, r, v)                                                                                            \
    do {                                                                                                               \
        const float4 put = (v);                                                                                        \
        AT4(slot, c, r) = put;                                                                                         \
        PUT_HALVES4((slot) + (c), r, put);                                                                             \
    } while (0)

/* Loads that keep their place: many are to be under way. */
#ifdef IST_PTX
#define UNROLLED _Pragma("unroll")
#define ROLLED   _Pragma("unroll 1")
#define BY_FOURS _Pragma("unroll 4")
#define PART     static inline
#define ONLY(condition)                                                                                                \
    if (!(condition)) return
#define LOAD_PIECE(v, p)                                                                                               \
    __asm__ volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"                                                     \
                     : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3])                                          \
                     : "l"(p))
#define LOAD_QUAD(v, p)                                                                                                \
    __asm__ volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"((v).x), "=r"((v).y) : "l"(p))
#define LOAD_OCT(v, p)                                                                                                 \
    __asm__ volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"                                                        \
                     : "=r"((v).x), "=r"((v).y), "=r"((v).z), "=r"((v).w)                                              \
                     : "l"(p))
#define OF_LANE(v, mask)                                                                                               \
    __asm__ volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;" : "+f"(v) : "r"(mask))
#define ROW_MEETS() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#define COPY_FLOATS(to, from) COPY16(SHARED(to), from, 16)
/* The address of a local array, once: for sm_90 the compiler finds it anew at each use, from a special register. */
#define PLACE_OF(type, array) ((__local type *)(size_t)place_of(SHARED(array)))
static inline uint place_of(uint address) {
    uint place;
    __asm__ volatile("mov.u32 %0, %1;" : "=r"(place) : "r"(address));
    return place;
}
/* Words for another group to see, and as they are now. */
#define PUT_QUAD(p, v)                                                                                                 \
    __asm__ volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"((v).x), "r"((v).y),          \
                     "r"((v).z), "r"((v).w)                                                                            \
                     : "memory")
#define PUT_TWO(p, v)                                                                                                  \
    __asm__ volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"((v).x), "r"((v).y) : "memory")
#define SEE_QUAD(v, p)                                                                                                 \
    __asm__ volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"                                            \
                     : "=r"((v).x), "=r"((v).y), "=r"((v).z), "=r"((v).w)                                              \
                     : "l"(p)                                                                                          \
                     : "memory")
#else /* loops with barriers stay loops, and no loop is in a branch (cl/README.md, "What to know") */
#define UNROLLED
#define ROLLED
#define BY_FOURS
#define PART             static inline
#define ONLY(condition)
#define LOAD_PIECE(v, p) vstore4(*(p), 0, (v))
#define LOAD_QUAD(v, p)  (v).xy = *(__global const uint2 *)(p)
#define LOAD_OCT(v, p)   (v) = *(__global const uint4 *)(p)
#define COPY_FLOATS(to, from) *(to) = *(__global const float4 *)(from)
/* Not the array itself: see cl/README.md, "What to know". */
#define PLACE_OF(type, array) ((__local type *)((array) + (arg.rows < 0)))
#define ROW_MEETS() barrier(CLK_LOCAL_MEM_FENCE)
#define PUT_QUAD(p, v) vstore4((v), 0, (p))
#define PUT_TWO(p, v)  vstore2((v), 0, (p))
#define SEE_QUAD(v, p) (v) = vload4(0, (p))
#define OF_LANE(v, mask)                                                                                               \
    do {                                                                                                               \
        scratch[get_local_id(0)][0] = as_uint(v);                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        (v) = as_float(scratch[get_local_id(0) ^ (mask)][0]);                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#endif

static inline float4 values_of(uint2 v) {
    const float2 a = floats_of(v.x), b = floats_of(v.y);
    return (float4)(a.x, a.y, b.x, b.y);
}

/* Channels c and, if there are two, c + 1. */
static inline void put_pair(__local float4 *m, int c, int r, float2 v, int two) {
    if (two) {
        AT2(0, c, r) = v;
        PUT_HALVES2(c, r, v);
    } else {
        PUT(0, c, r, v.x);
    }
}

#if SPLIT > 1
/* Floats as words that are not zero: zero is what has not come yet. The bits of one NaN become another's. */
static inline void mail_pair(__global uint *to, float2 v) {
    uint2 bits = ~as_uint2(v);
    bits = select(bits, (uint2)(1u), bits == 0u);
    PUT_TWO(to, bits);
}
static inline void mail_quad(__global uint *to, float4 v) {
    uint4 bits = ~as_uint4(v);
    bits = select(bits, (uint4)(1u), bits == 0u);
    PUT_QUAD(to, bits);
}
#endif

/* ---- work on single rows: r is the warp's, `lane` of 32 ---- */

/* t: slot, columns, tensor, ld, c0, flags, 1 with an index, tokens, index; of the first step what load_rows takes. */
PART void load_row(__local float4 *m, int16 t, __global const char *p, __global const int *index, int n, int row,
                   int rows, int r, int lane) {
    const int tokens = t.s7 ? t.s8 : rows;
    int from = min(row, rows - 1);
    if (t.s7) from = clamp(index[n * rows + from], 0, tokens - 1);
    from = ((t.s6 & ONE_ITEM ? 0 : n) * tokens + from) * t.s4 + t.s5;
    if (t.s6 & QUADS && !(t.s6 & FLOATS)) {
        ROLLED for (int c0 = lane * 4; c0 < t.s2; c0 += 512) {
            uint2 v[4];
            UNROLLED for (int i = 0; i < 4; i++)
                LOAD_QUAD(v[i], (__global const T *)p + from + min(c0 + i * 128, t.s2 - 4));
            UNROLLED for (int i = 0; i < 4; i++)
                if (c0 + i * 128 < t.s2) {
                    const float4 f = values_of(v[i]);
                    const int c = c0 + i * 128;
                    PUT(t.s1, c, r, f.x);
                    PUT(t.s1, c + 1, r, f.y);
                    PUT(t.s1, c + 2, r, f.z);
                    PUT(t.s1, c + 3, r, f.w);
                }
        }
        return;
    }
    ROLLED for (int c = lane; c < t.s2; c += 32)
        PUT(t.s1, c, r, t.s6 & FLOATS ? ((__global const float *)p)[from + c] : LOAD((__global const T *)p, from + c));
}

/* The first steps of the tape, all such loads without an index, under way together: `quads` of up to 256 columns in
 * quads, by registers; from there to `count` floats, in quads too, which are there when the group has waited. */
#ifdef IST_PTX
PART void load_rows(__local float4 *m, __local const int16 *steps, int quads, int count,
                    __global char *__local const *at, int n, int row, int rows, int r, int lane) {
    uint2 v[LOADS][2];
    ROLLED for (int u = quads; u < count; u++) {
        const int8 t = steps[u].lo;
        const int from = ((t.s6 & ONE_ITEM ? 0 : n) * rows + min(row, rows - 1)) * t.s4 + t.s5;
        ROLLED for (int c = lane * 4; c < t.s2; c += 128)
            COPY_FLOATS(&AT4(t.s1, c, r), (__global const float *)at[t.s3] + from + c);
    }
    UNROLLED for (int u = 0; u < LOADS; u++)
        if (u < quads) {
            const int8 t = steps[u].lo;
            const int from = ((t.s6 & ONE_ITEM ? 0 : n) * rows + min(row, rows - 1)) * t.s4 + t.s5;
            UNROLLED for (int i = 0; i < 2; i++)
                LOAD_QUAD(v[u][i], (__global const T *)at[t.s3] + from + min(lane * 4 + i * 128, t.s2 - 4));
        }
    UNROLLED for (int u = 0; u < LOADS; u++)
        if (u < quads) {
            const int8 t = steps[u].lo;
            UNROLLED for (int i = 0; i < 2; i++)
                if (lane * 4 + i * 128 < t.s2) PUT4(t.s1, lane * 4 + i * 128, r, values_of(v[u][i]));
        }
}
#endif

/* t: slot, columns, tensor, ld, c0, flags. */
PART void store_row(__local float4 *m, int8 t, __global char *p, int n, int row, int rows, int r, int lane) {
    const int to = (n * rows + row) * t.s4 + t.s5;
    if (row >= rows) return;
    if (t.s6 & QUADS && !(t.s6 & FLOATS)) {
        ROLLED for (int c = lane * 4; c < t.s2; c += 128)
            *(__global uint2 *)((__global T *)p + to + c) =
                (uint2)(halves_of(AT(t.s1, c, r), AT(t.s1, c + 1, r)),
                        halves_of(AT(t.s1, c + 2, r), AT(t.s1, c + 3, r)));
        return;
    }
    ROLLED for (int c = lane; c < t.s2; c += 32) {
        if (t.s6 & FLOATS)
            ((__global float *)p)[to + c] = AT(t.s1, c, r);
        else
            STORE(AT(t.s1, c, r), (__global T *)p, to + c);
    }
}

static inline float4 sigmoid4(float4 v) {
    v *= -1.44269504f;
    return (float4)(quick_reciprocal(1.0f + quick_exp2(v.x)), quick_reciprocal(1.0f + quick_exp2(v.y)),
                    quick_reciprocal(1.0f + quick_exp2(v.z)), quick_reciprocal(1.0f + quick_exp2(v.w)));
}

/* Four channels from c on. t: -, -, a, b, mode, low, high, gates. */
static inline float4 elements(__local float4 *m, int16 t, int c, int r) {
    float4 v = AT4(t.s3, c, r);
    if (t.s5 & GATED)
        v = sigmoid4(AT4(t.s8, c, r)) * v + sigmoid4(AT4(t.s8, t.s2 + c, r)) * AT4(t.s4, c, r);
    else if (t.s5 & ONE_COLUMN)
        v += (float4)(AT(t.s4, 0, r));
    else if (t.s5 & PRESENT)
        v += AT4(t.s4, c, r);
    if (t.s5 & CLAMPED) v = clamp(v, (float4)(as_float(t.s6)), (float4)(as_float(t.s7)));
    return v;
}

/* What a step made, plus an addend, to a place that is none of its operands'. t: out, columns, -, -, mode, in word 12
 * 256 times the place and 2^20 times the addend's. */
PART void also(__local float4 *m, int16 t, int r, int lane) {
    if (t.s5 & ALSO) {
        const int to = t.sc >> 8 & 0xfff, with = (uint)t.sc >> 20;
        ROLLED for (int c = lane * 4; c < t.s2; c += 128) PUT4(to, c, r, AT4(t.s1, c, r) + AT4(with, c, r));
    }
}

/* t: out, columns, a, b, mode, low, high, -, -, -, -, for `also`. */
PART void eltwise(__local float4 *m, int16 t, int r, int lane) {
    if (t.s5 & IN_FOURS) {
        ROLLED for (int c = lane * 4; c < t.s2; c += 128) PUT4(t.s1, c, r, elements(m, t, c, r));
        also(m, t, r, lane);
        return;
    }
    ROLLED for (int c = lane; c < t.s2; c += 32) {
        float v = AT(t.s3, c, r);
        if (t.s5 & PRESENT) v += AT(t.s4, t.s5 & ONE_COLUMN ? 0 : c, r);
        if (t.s5 & CLAMPED) v = clamp(v, as_float(t.s6), as_float(t.s7));
        PUT(t.s1, c, r, v);
    }
}

/* LayerNorm of a sum or of what gates let through, up to 256 channels in fours; statistics in two passes. t: out,
 * columns, a, b, mode, low, high, gates, gamma, beta, eps, act and what `also` takes. The out is none of the others. */
#ifdef IST_PTX
static inline float sum_warp(float4 v) {
    float total = (v.x + v.y) + (v.z + v.w);
    UNROLLED for (int mask = 1; mask < 32; mask *= 2) {
        float other = total;
        OF_LANE(other, mask);
        total += other;
    }
    return total;
}

PART void norm(__local float4 *m, int16 t, TABLE const float *table, int r, int lane) {
    float4 x[2], sum = (float4)(0.0f), squares = sum;
    ROLLED for (int c = lane * 4; c < t.s2; c += 128) AT4(t.s1, c, r) = elements(m, t, c, r);
    UNROLLED for (int i = 0; i < 2; i++) {
        x[i] = (float4)(0.0f);
        if (lane * 4 + 128 * i < t.s2) x[i] = AT4(t.s1, lane * 4 + 128 * i, r);
        sum += x[i];
    }
    const float part = 1.0f / (float)t.s2, mean = sum_warp(sum) * part;
    UNROLLED for (int i = 0; i < 2; i++)
        if (lane * 4 + 128 * i < t.s2) squares = fma(x[i] - mean, x[i] - mean, squares);
    const float scale = rsqrt(fma(sum_warp(squares), part, as_float(t.sb)));
    UNROLLED for (int i = 0; i < 2; i++)
        if (lane * 4 + 128 * i < t.s2)
            PUT4(t.s1, lane * 4 + 128 * i, r,
                 fma((x[i] - mean) * scale, FLOATS_AT(table + t.s9, lane * 4 + 128 * i),
                     FLOATS_AT(table + t.sa, lane * 4 + 128 * i)));
    const int act = t.sc & 0xff;
    if (act != ACT_NONE)
        ROLLED for (int c = lane * 4; c < t.s2; c += 128) PUT4(t.s1, c, r, activate_float4(AT4(t.s1, c, r), act));
    also(m, t, r, lane);
}
#else /* no work-item asks another one: each adds up the whole row */
PART void norm(__local float4 *m, int16 t, TABLE const float *table, int r, int lane) {
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < t.s2; c += 4) {
        const float4 x = elements(m, t, c, r);
        sum += (x.x + x.y) + (x.z + x.w);
    }
    const float mean = sum / (float)t.s2;
    for (int c = 0; c < t.s2; c += 4) {
        const float4 x = elements(m, t, c, r) - mean;
        squares += dot(x, x);
    }
    const float scale = 1.0f / sqrt(squares / (float)t.s2 + as_float(t.sb));
    for (int c = lane * 4; c < t.s2; c += 128) {
        const float4 v = (elements(m, t, c, r) - mean) * scale;
        PUT4(t.s1, c, r,
             activate_float4(fma(v, FLOATS_AT(table + t.s9, c), FLOATS_AT(table + t.sa, c)), t.sc & 0xff));
    }
    also(m, t, r, lane);
}
#endif

/* Deformable attention (portable/deform): where each point of each head looks. t: offsets, weights, box, places at, table
 * [4][points], points, heads, 2^16 / points, rounded up. Places: [4][heads * points] tokens, then as many weights
 * without the softmax's division, then its exponentials. */
PART void sample_at(__local float4 *m, int16 t, TABLE const float *table, int r, int lane) {
    const int points = t.s6, all = t.s7 * points;
    TABLE const float *at = table + t.s5;
    ROLLED for (int hp = lane; hp < all; hp += 32) {
        const int h0 = (hp * t.s8 >> 16) * points, p = hp - h0;
        const float width = at[p], height = at[points + p], start = at[2 * points + p], reach = at[3 * points + p];
        float most = AT(t.s2, h0, r);
        BY_FOURS for (int k = 1; k < points; k++) most = fmax(most, AT(t.s2, h0 + k, r));
        const float a = ist_exp_float(AT(t.s2, hp, r) - most);
        const int iw = (int)width, ih = (int)height, first = (int)start;
        const float lx = fma(AT(t.s1, 2 * hp, r) * reach, AT(t.s3, 2, r), AT(t.s3, 0, r));
        const float ly = fma(AT(t.s1, 2 * hp + 1, r) * reach, AT(t.s3, 3, r), AT(t.s3, 1, r));
        const float x = fmin(fmax(fma(lx, width, -0.5f), -2.0f), width + 1.0f);
        const float y = fmin(fmax(fma(ly, height, -0.5f), -2.0f), height + 1.0f);
        const float fx = floor(x), fy = floor(y), bx = x - fx, by = y - fy;
        AT(t.s4, 8 * all + hp, r) = a;
        UNROLLED for (int k = 0; k < 4; k++) {
            const int px = (int)fx + (k & 1), py = (int)fy + (k >> 1);
            const int in = px >= 0 && px < iw && py >= 0 && py < ih;
            const float share = (k & 1 ? bx : 1.0f - bx) * (k >> 1 ? by : 1.0f - by) * a;
            AT_INT(t.s4, k * all + hp, r) = first + clamp(py, 0, ih - 1) * iw + clamp(px, 0, iw - 1);
            AT(t.s4, (4 + k) * all + hp, r) = in ? share : 0.0f;
        }
    }
}

/* t: out, places at, tensor, ld, c0, flags, heads, points, head dimension, tokens, where in the row's mail the other
 * group gets it (-1: it does not). A lane takes eight channels where a pixel's are aligned (OCTS), else four; where a
 * half or a quarter of the lanes would do, all take a share of the points. */
PART void sample_sum(__local float4 *m, int16 t, __global const T *memory, __global uint *mail, int n, int r,
                     int lane) {
    const int points = t.s8, all = t.s7 * points, d = t.s9, octs = t.s6 & OCTS ? 2 : 1;
    const int base = (t.s6 & ONE_ITEM ? 0 : n) * t.sa * t.s4 + t.s5;
#ifdef IST_PTX
    const int lanes = octs == 2 && (t.s7 * d == 128 || t.s7 * d == 64) ? t.s7 * d / 8 : 32;
#else
    const int lanes = 32;
#endif
    const int each = (points * lanes + 31) / 32, first = min(lane / lanes * each, points);
    const int end = min(first + each, points);
    ROLLED for (int c = lane % lanes * 4 * octs; c < t.s7 * d; c += 128 * octs) {
        const int h = c / d * points;
        float4 a = (float4)(0.0f), b = a;
        float sum = 0.0f;
        ROLLED for (int p0 = first; p0 < end; p0 += ROUND) {
            uint4 v[4 * ROUND];
            if (octs == 2) {
                UNROLLED for (int u = 0; u < 4 * ROUND; u++)
                    LOAD_OCT(v[u], memory + base +
                                       AT_INT(t.s2, (u & 3) * all + h + min(p0 + u / 4, end - 1), r) * t.s4 + c);
            } else {
                UNROLLED for (int u = 0; u < 4 * ROUND; u++) {
                    v[u].zw = (uint2)(0u);
                    LOAD_QUAD(v[u], memory + base +
                                        AT_INT(t.s2, (u & 3) * all + h + min(p0 + u / 4, end - 1), r) * t.s4 + c);
                }
            }
            UNROLLED for (int u = 0; u < 4 * ROUND; u++)
                if (p0 + u / 4 < end) {
                    const float4 w = (float4)(AT(t.s2, (4 + (u & 3)) * all + h + p0 + u / 4, r));
                    if (!(u & 3)) sum += AT(t.s2, 8 * all + h + p0 + u / 4, r);
                    a = fma(w, values_of(v[u].xy), a);
                    b = fma(w, values_of(v[u].zw), b);
                }
        }
#ifdef IST_PTX
        ROLLED for (int mask = lanes; mask < 32; mask *= 2) {
            float other[9] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, sum};
            UNROLLED for (int i = 0; i < 9; i++) OF_LANE(other[i], mask);
            a += (float4)(other[0], other[1], other[2], other[3]);
            b += (float4)(other[4], other[5], other[6], other[7]);
            sum += other[8];
        }
        if (lane >= lanes) continue;
#endif
        a *= 1.0f / sum;
        b *= 1.0f / sum;
        PUT4(t.s1, c, r, a);
        if (octs == 2) PUT4(t.s1, c + 4, r, b);
#if SPLIT > 1
        if (t.sb >= 0) {
            mail_quad(mail + r * 2 * MAIL + t.sb + c, a);
            if (octs == 2) mail_quad(mail + r * 2 * MAIL + t.sb + c + 4, b);
        }
#endif
    }
}

#if SPLIT > 1
static inline int has_come(uint4 v) {
    return v.x && v.y && v.z && v.w;
}

/* Two groups have the same rows and sums of half of the inputs each: adds what the other one has made (put_sums), then
 * bias and activation; takes what its heads have sampled. What is read is zeroed for the next launch, which begins when
 * this one has ended. t: slot, columns, bias (-1: none), act, where in the row's mail; of the heads slot, columns and
 * where in the mail. mail: the other group's. */
PART void meet(__local float4 *m, int16 t, TABLE const float *table, __global uint *mail, int r, int lane) {
    __global uint *from = mail + t.s5, *heads = mail + t.s8;
    const uint4 none = (uint4)(0u);
    ROLLED for (int c0 = lane * 4, h = lane * 4; c0 < t.s2 || h < t.s7; c0 += 512, h += 128) {
        uint4 v[4], sampled;
        int there;
        do {
            UNROLLED for (int i = 0; i < 4; i++) SEE_QUAD(v[i], from + min(c0 + i * 128, t.s2 - 4));
            SEE_QUAD(sampled, heads + max(min(h, t.s7 - 4), 0));
            there = h >= t.s7 || has_come(sampled);
            UNROLLED for (int i = 0; i < 4; i++) there = there && (c0 + i * 128 >= t.s2 || has_come(v[i]));
        } while (!there);
        UNROLLED for (int i = 0; i < 4; i++) {
            const int c = c0 + i * 128;
            if (c < t.s2) {
                float4 sum = AT4(t.s1, c, r) + as_float4(~v[i]);
                if (t.s3 >= 0) sum += FLOATS_AT(table + t.s3, c);
                if (t.s4 == ACT_RELU) sum = max(sum, (float4)(0.0f));
                PUT4(t.s1, c, r, sum);
                PUT_QUAD(from + c, none);
            }
        }
        if (h < t.s7) {
            PUT4(t.s6, h, r, as_float4(~sampled));
            PUT_QUAD(heads + h, none);
        }
    }
}
#endif

/* t: out, columns, a, b, 1 to take the logit of b. */
PART void box_sigmoid(__local float4 *m, int16 t, int r, int lane) {
    ROLLED for (int c = lane; c < t.s2; c += 32) {
        const float b = AT(t.s4, c, r);
        PUT(t.s1, c, r, sigmoid(AT(t.s3, c, r) + (t.s5 ? logit(b) : b)));
    }
}

/* A sum of corner logits, its integral over the bins of each side, and the box that these make: portable/box's fdr. t: boxes,
 * corners, a, b, mode, first boxes, scale, bins' offsets. */
static inline void side_box(__local float4 *m, int16 t, int r, int axis, float before, float behind) {
    const float2 moved = moved_sides(AT(t.s6, axis, r), AT(t.s6, 2 + axis, r), before, behind, as_float(t.s7));
    PUT(t.s1, axis, r, moved.x);
    PUT(t.s1, 2 + axis, r, moved.y);
}

#ifdef IST_PTX
/* Eight lanes have a side. */
PART void sides(__local float4 *m, int16 t, TABLE const float *table, int r, int lane) {
    const int s = lane / 8 * BINS, part = lane % 8;
    float v[5], most = LOWEST, total = 0.0f, weighted = 0.0f;
    UNROLLED for (int i = 0; i < 5; i++) {
        const int bin = min(part + 8 * i, BINS - 1);
        v[i] = AT(t.s3, s + bin, r);
        if (t.s5 & PRESENT) v[i] += AT(t.s4, s + bin, r);
        most = fmax(most, v[i]);
    }
    UNROLLED for (int mask = 1; mask < 8; mask *= 2) {
        float other = most;
        OF_LANE(other, mask);
        most = fmax(most, other);
    }
    UNROLLED for (int i = 0; i < 5; i++)
        if (part + 8 * i < BINS) {
            const float e = ist_exp_float(v[i] - most);
            PUT(t.s2, s + part + 8 * i, r, v[i]);
            total += e;
            weighted = fma(e, table[t.s8 + part + 8 * i], weighted);
        }
    UNROLLED for (int mask = 1; mask < 8; mask *= 2) {
        float more = total, other = weighted;
        OF_LANE(more, mask);
        OF_LANE(other, mask);
        total += more;
        weighted += other;
    }
    const float integral = weighted / total;
    float opposite = integral;
    OF_LANE(opposite, 16);
    if (part == 0 && lane < 16) side_box(m, t, r, lane / 8, integral, opposite);
}
#else
PART void sides(__local float4 *m, int16 t, TABLE const float *table, int r, int lane) {
    const int two = t.s5 & PRESENT;
    for (int c = lane; c < 4 * BINS; c += 32) PUT(t.s2, c, r, AT(t.s3, c, r) + (two ? AT(t.s4, c, r) : 0.0f));
    if (lane >= 2) return;
    float integral[2];
    for (int k = 0; k < 2; k++) {
        const int s = (2 * k + lane) * BINS;
        bins b;
#define BIN(i)     (AT(t.s3, s + (i), r) + (two ? AT(t.s4, s + (i), r) : 0.0f))
#define PROJECT(i) table[t.s8 + (i)]
        BINS_ONE_BY_ONE(b, BIN, PROJECT)
#undef PROJECT
#undef BIN
        integral[k] = b.weighted / b.total;
    }
    side_box(m, t, r, lane, integral[0], integral[1]);
}
#endif

/* The four largest probabilities of each side and their mean, portable/box's lqe. t: out, corners. */
#ifdef IST_PTX
/* Eight lanes have a side: four times the greatest of what is left. */
PART void sides_best(__local float4 *m, int16 t, int r, int lane) {
    const int s = lane / 8, part = lane % 8;
    float v[5], best[4], total = 0.0f;
    UNROLLED for (int i = 0; i < 5; i++) {
        v[i] = part + 8 * i < BINS ? AT(t.s2, s * BINS + min(part + 8 * i, BINS - 1), r) : -INFINITY;
        v[i] = v[i] != v[i] ? -INFINITY : v[i];
    }
    UNROLLED for (int k = 0; k < 4; k++) {
        const float own = fmax(fmax(fmax(v[0], v[1]), fmax(v[2], v[3])), v[4]);
        float most = own;
        uint holders;
        UNROLLED for (int mask = 1; mask < 8; mask *= 2) {
            float other = most;
            OF_LANE(other, mask);
            most = fmax(most, other);
        }
        best[k] = most;
        UNROLLED for (int i = 0; i < 5; i++)
            if (k == 0 && part + 8 * i < BINS) total += ist_exp_float(v[i] - most);
        __asm__ volatile("{ .reg .pred p; setp.eq.f32 p, %1, %2; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                         : "=r"(holders)
                         : "f"(own), "f"(most));
        holders = holders >> s * 8 & 0xffu;
        int gone = (holders & -holders) != 1u << part;
        UNROLLED for (int i = 0; i < 5; i++)
            if (!gone && v[i] == most) {
                v[i] = -INFINITY;
                gone = 1;
            }
    }
    UNROLLED for (int mask = 1; mask < 8; mask *= 2) {
        float other = total;
        OF_LANE(other, mask);
        total += other;
    }
    const float4 p = probabilities((float4)(best[0], best[1], best[2], best[3]), total);
    const float mean = mean_of(p);
    if (part < 5)
        PUT(t.s1, 5 * s + part, r, part < 2 ? (part ? p.y : p.x) : part < 4 ? (part == 3 ? p.w : p.z) : mean);
}
#else
PART void sides_best(__local float4 *m, int16 t, int r, int s) {
    if (s >= 4) return;
    float4 top, p;
    float total = 0.0f;
#define BIN(i) AT(t.s2, s * BINS + (i), r)
    FOUR_LARGEST(top, BIN)
    ROLLED for (int i = 0; i < BINS; i++) total += ist_exp_float(BIN(i) - top.x);
#undef BIN
    p = probabilities(top, total);
    PUT(t.s1, 5 * s, r, p.x);
    PUT(t.s1, 5 * s + 1, r, p.y);
    PUT(t.s1, 5 * s + 2, r, p.z);
    PUT(t.s1, 5 * s + 3, r, p.w);
    PUT(t.s1, 5 * s + 4, r, mean_of(p));
}
#endif
