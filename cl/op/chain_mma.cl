/* A chain (cl/op/chain.cl) on matrix instructions; needs isa/ptx and half storage. The tape is that of op/chain but for
 * linear layers; attention is a launch of its own (op/attention_mma), between two pieces of a chain.
 *
 * A group takes eight rows, a warp each where work is on single rows; what lies between stays in local memory as
 * floats, [row][channel]. In linear layers the rows are the instructions' columns: (16 outputs x 16 inputs) (16 inputs
 * x 8 rows). Such a chain takes at least the time in which a compute unit reads all weights from the second-level cache
 * (some 60 bytes a clock on an H200), so that reading should not pause: the weights of the whole launch lie in the order
 * in which each lane uses them, and each lane asks for them sixteen pieces ahead, across the steps in between. Loads are
 * asked for in batches wherever a loop would wait for each.
 *
 * -D SLOTS: channels of local memory, 16 more than a multiple of 32, so that two rows are in different banks. -D
 * THREADS=256. */
#define ITEMS  256
#define ROWS   8
#define LOWEST (-3.0e38f)
#define BINS   33

/* The numbers of enum micro in src/ops/chain_tape.c. */
#define LOAD_ROWS   0
#define STORE_ROWS  1
#define LINEAR_SUM  3
#define ELTWISE     4
#define NORM        5
#define SAMPLE_AT   13
#define SAMPLE_SUM  14
#define BOX_SIGMOID 15
#define SIDES       16
#define SIDES_BOX   17
#define SIDES_BEST  18
#define MATRIX_LINEAR 19
/* With the number of the operator: the next step wants what other warps make, or the tape has to be read on; turns of
 * a linear layer. */
#define GROUP_WAITS     256
#define LINEAR_TURNS(w) ((w) >> 9)

#define PRESENT    1 /* of an element: its second operand */
#define ONE_COLUMN 2
#define GATED      4
#define CLAMPED    8
#define IN_FOURS   16 /* columns and places are multiples of four */
#define FLOATS     1 /* of a tensor outside: its elements are float although T is half */
#define ONE_ITEM   2
#define QUADS      4 /* may be read and written by fours */
#define OCTS       8 /* by eights */
#define WHOLE      1 /* of a linear layer: inputs can be read by fours, and are 64 or a multiple of it in every part */
#define EXACT      2 /* its inputs count as floats: once rounded to half, and once what was lost */

/* Channel c of row r. */
#define AT(slot, c, r)     (((__local float *)m)[(r) * SLOTS + (slot) + (c)])
#define AT_INT(slot, c, r) (((__local int *)m)[(r) * SLOTS + (slot) + (c)])
/* Four from a multiple of four on. */
#define AT4(slot, c, r)    (*(__local float4 *)&AT(slot, c, r))

/* Loads that keep their place: many are to be under way. */
#ifdef IST_PTX
#define UNROLLED _Pragma("unroll")
#define ROLLED   _Pragma("unroll 1")
#define PART     static inline
#define ONLY(condition)                                                                                                \
    if (!(condition)) return
#define LOAD_PIECE(v, p)                                                                                               \
    __asm__ volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"                                                     \
                     : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3])                                          \
                     : "l"(p))
#define LOAD_QUAD(v, p)                                                                                                \
    __asm__ volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"((v).x), "=r"((v).y) : "l"(p))
#define LOAD_FLOAT(v, p) __asm__ volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p))
#define LOAD_FLOATS(v, p)                                                                                              \
    __asm__ volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"                                                        \
                     : "=f"((v).x), "=f"((v).y), "=f"((v).z), "=f"((v).w)                                              \
                     : "l"(p))
#define LOAD_OCT(v, p)                                                                                                 \
    __asm__ volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"                                                        \
                     : "=r"((v).x), "=r"((v).y), "=r"((v).z), "=r"((v).w)                                              \
                     : "l"(p))
#define OF_LANE(v, mask)                                                                                               \
    __asm__ volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;" : "+f"(v) : "r"(mask))
#define ROW_BARRIER() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else /* loops with barriers stay loops, and no loop is in a branch (cl/README.md, "What to know") */
#define UNROLLED
#define ROLLED
#define PART             static inline
#define ONLY(condition)
#define LOAD_PIECE(v, p) vstore4(*(p), 0, (v))
#define LOAD_QUAD(v, p)  (v).xy = *(__global const uint2 *)(p)
#define LOAD_FLOAT(v, p) (v) = *(p)
#define LOAD_FLOATS(v, p) (v) = *(__global const float4 *)(p)
#define LOAD_OCT(v, p)   (v) = *(__global const uint4 *)(p)
#define OF_LANE(v, mask)                                                                                               \
    do {                                                                                                               \
        scratch[get_local_id(0)][0] = as_uint(v);                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        (v) = as_float(scratch[get_local_id(0) ^ (mask)][0]);                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#endif
#define LOWS(a, b)  (((a) & 0xffffu) | (b) << 16)
#define HIGHS(a, b) ((a) >> 16 | ((b) & 0xffff0000u))

static inline float4 values_of(uint2 v) {
    const float2 a = floats_of(v.x), b = floats_of(v.y);
    return (float4)(a.x, a.y, b.x, b.y);
}

/* Channels c to c + 3 of a row; zeros from `end` on. */
static inline float4 quad_at(__local const float *row, int c, int end, int whole) {
    if (whole) return *(__local const float4 *)(row + c);
    return (float4)(c < end ? row[c] : 0.0f, c + 1 < end ? row[c + 1] : 0.0f, c + 2 < end ? row[c + 2] : 0.0f,
                    c + 3 < end ? row[c + 3] : 0.0f);
}

/* ---- work on single rows: r is the warp's, `lane` of 32 ---- */

/* t: slot, columns, tensor, ld, c0, flags, 1 with an index, tokens, index. */
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
                    AT(t.s1, c, r) = f.x;
                    AT(t.s1, c + 1, r) = f.y;
                    AT(t.s1, c + 2, r) = f.z;
                    AT(t.s1, c + 3, r) = f.w;
                }
        }
        return;
    }
    ROLLED for (int c = lane; c < t.s2; c += 32)
        AT(t.s1, c, r) = t.s6 & FLOATS ? ((__global const float *)p)[from + c] : LOAD((__global const T *)p, from + c);
}

/* t: slot, columns, tensor, ld, c0, flags. */
PART void store_row(__local float4 *m, int16 t, __global char *p, int n, int row, int rows, int r, int lane) {
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

/* What the parts of the inputs made. t: out, outputs, parts at, their distance, parts, bias (-1: none), act, before
 * (-1: none), after (-1: none), 1 where all is in fours. Four times 128 outputs are under way at a time. */
PART void linear_sum(__local float4 *m, int16 t, __global const float *table, int r, int lane) {
    if (!t.sa) {
        ROLLED for (int o = lane; o < t.s2; o += 32) {
            float v = t.s6 < 0 ? 0.0f : table[t.s6 + o];
            for (int k = 0; k < t.s5; k++) v += AT(t.s3, k * t.s4 + o, r);
            if (t.s8 >= 0) v += AT(t.s8, o, r);
            v = activate_float(v, t.s7);
            if (t.s9 >= 0) v += AT(t.s9, o, r);
            AT(t.s1, o, r) = v;
        }
        return;
    }
    ROLLED for (int o = lane * 4; o < t.s2; o += 512) {
        float4 v[4];
        UNROLLED for (int i = 0; i < 4; i++) {
            v[i] = (float4)(0.0f);
            if (t.s6 >= 0 && o + 128 * i < t.s2) LOAD_FLOATS(v[i], table + t.s6 + o + 128 * i);
        }
        ROLLED for (int k = 0; k < t.s5; k++)
            UNROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2) v[i] += AT4(t.s3, k * t.s4 + o + 128 * i, r);
        if (t.s8 >= 0) {
            UNROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2) v[i] += AT4(t.s8, o + 128 * i, r);
        }
        if (t.s7 == ACT_RELU) {
            UNROLLED for (int i = 0; i < 4; i++) v[i] = max(v[i], (float4)(0.0f));
        } else if (t.s7 != ACT_NONE) {
            UNROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2) AT4(t.s1, o + 128 * i, r) = v[i];
            ROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2)
                    AT4(t.s1, o + 128 * i, r) = activate_float4(AT4(t.s1, o + 128 * i, r), t.s7);
            UNROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2) v[i] = AT4(t.s1, o + 128 * i, r);
        }
        if (t.s9 >= 0) {
            UNROLLED for (int i = 0; i < 4; i++)
                if (o + 128 * i < t.s2) v[i] += AT4(t.s9, o + 128 * i, r);
        }
        UNROLLED for (int i = 0; i < 4; i++)
            if (o + 128 * i < t.s2) AT4(t.s1, o + 128 * i, r) = v[i];
    }
}

static inline float4 sigmoid4(float4 v) {
    return (float4)(1.0f) / ((float4)(1.0f) + ist_exp_float4(-v));
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

/* t: out, columns, a, b, mode, low, high, -. */
PART void eltwise(__local float4 *m, int16 t, int r, int lane) {
    if (t.s5 & IN_FOURS) {
        ROLLED for (int c = lane * 4; c < t.s2; c += 128) AT4(t.s1, c, r) = elements(m, t, c, r);
        return;
    }
    ROLLED for (int c = lane; c < t.s2; c += 32) {
        float v = AT(t.s3, c, r);
        if (t.s5 & PRESENT) v += AT(t.s4, t.s5 & ONE_COLUMN ? 0 : c, r);
        if (t.s5 & CLAMPED) v = clamp(v, as_float(t.s6), as_float(t.s7));
        AT(t.s1, c, r) = v;
    }
}

/* LayerNorm of a sum or of what gates let through, up to 512 channels in fours; statistics in two passes. t: out,
 * columns, a, b, mode, low, high, gates, gamma, beta, eps, act. The out is none of the others. */
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

PART void norm(__local float4 *m, int16 t, __global const float *table, int r, int lane) {
    float4 x[4], gamma[4], beta[4], sum = (float4)(0.0f), squares = sum;
    UNROLLED for (int i = 0; i < 4; i++) {
        const int c = min(lane * 4 + 128 * i, t.s2 - 4);
        LOAD_FLOATS(gamma[i], table + t.s9 + c);
        LOAD_FLOATS(beta[i], table + t.sa + c);
    }
    UNROLLED for (int i = 0; i < 4; i++) {
        x[i] = (float4)(0.0f);
        if (lane * 4 + 128 * i < t.s2) x[i] = elements(m, t, lane * 4 + 128 * i, r);
        sum += x[i];
    }
    const float mean = sum_warp(sum) / (float)t.s2;
    UNROLLED for (int i = 0; i < 4; i++)
        if (lane * 4 + 128 * i < t.s2) squares = fma(x[i] - mean, x[i] - mean, squares);
    const float scale = 1.0f / sqrt(sum_warp(squares) / (float)t.s2 + as_float(t.sb));
    UNROLLED for (int i = 0; i < 4; i++)
        if (lane * 4 + 128 * i < t.s2)
            AT4(t.s1, lane * 4 + 128 * i, r) = fma((x[i] - mean) * scale, gamma[i], beta[i]);
    if (t.sc == ACT_NONE) return;
    ROLLED for (int c = lane * 4; c < t.s2; c += 128) AT4(t.s1, c, r) = activate_float4(AT4(t.s1, c, r), t.sc);
}
#else /* no work-item asks another one: each adds up the whole row */
PART void norm(__local float4 *m, int16 t, __global const float *table, int r, int lane) {
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
        const float4 gamma = vload4(0, table + t.s9 + c), beta = vload4(0, table + t.sa + c);
        AT4(t.s1, c, r) = activate_float4(fma((elements(m, t, c, r) - mean) * scale, gamma, beta), t.sc);
    }
}
#endif

/* Deformable attention (op/deform): where each point of each head looks. t: offsets, weights, box, places at, table
 * [4][points], points, heads. Places: [4][heads * points] tokens, then as many weights without the softmax's division,
 * then its exponentials. */
PART void sample_at(__local float4 *m, int16 t, __global const float *table, int r, int lane) {
    const int points = t.s6, all = t.s7 * points;
    __global const float *at = table + t.s5;
    ROLLED for (int hp = lane; hp < all; hp += 32) {
        const int h0 = hp / points * points, p = hp - h0;
        float width, height, reach, start;
        LOAD_FLOAT(width, at + p);
        LOAD_FLOAT(height, at + points + p);
        LOAD_FLOAT(start, at + 2 * points + p);
        LOAD_FLOAT(reach, at + 3 * points + p);
        float most = AT(t.s2, h0, r);
        for (int k = 1; k < points; k++) most = fmax(most, AT(t.s2, h0 + k, r));
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

/* t: out, places at, tensor, ld, c0, flags, heads, points, head dimension, tokens. A lane takes eight channels where a
 * pixel's are aligned (OCTS), else four. */
PART void sample_sum(__local float4 *m, int16 t, __global const T *memory, int n, int r, int lane) {
    const int points = t.s8, all = t.s7 * points, d = t.s9, octs = t.s6 & OCTS ? 2 : 1;
    const int base = (t.s6 & ONE_ITEM ? 0 : n) * t.sa * t.s4 + t.s5;
    ROLLED for (int c = lane * 4 * octs; c < t.s7 * d; c += 128 * octs) {
        const int h = c / d * points;
        float4 a = (float4)(0.0f), b = a;
        float sum = 0.0f;
        ROLLED for (int p0 = 0; p0 < points; p0 += 4) {
            uint4 v[16];
            if (octs == 2) {
                UNROLLED for (int u = 0; u < 16; u++)
                    LOAD_OCT(v[u], memory + base +
                                       AT_INT(t.s2, (u & 3) * all + h + min(p0 + u / 4, points - 1), r) * t.s4 + c);
            } else {
                UNROLLED for (int u = 0; u < 16; u++) {
                    v[u].zw = (uint2)(0u);
                    LOAD_QUAD(v[u], memory + base +
                                        AT_INT(t.s2, (u & 3) * all + h + min(p0 + u / 4, points - 1), r) * t.s4 + c);
                }
            }
            UNROLLED for (int u = 0; u < 16; u++)
                if (p0 + u / 4 < points) {
                    const float4 w = (float4)(AT(t.s2, (4 + (u & 3)) * all + h + p0 + u / 4, r));
                    if (!(u & 3)) sum += AT(t.s2, 8 * all + h + p0 + u / 4, r);
                    a = fma(w, values_of(v[u].xy), a);
                    b = fma(w, values_of(v[u].zw), b);
                }
        }
        a *= 1.0f / sum;
        b *= 1.0f / sum;
        UNROLLED for (int i = 0; i < 4; i++) AT(t.s1, c + i, r) = i < 2 ? (i ? a.y : a.x) : (i & 1 ? a.w : a.z);
        if (octs == 2) {
            UNROLLED for (int i = 0; i < 4; i++) AT(t.s1, c + 4 + i, r) = i < 2 ? (i ? b.y : b.x) : (i & 1 ? b.w : b.z);
        }
    }
}

static inline float sigmoid(float v) {
    return v != v ? v : 1.0f / (1.0f + ist_exp_float(-v));
}

/* t: out, columns, a, b, 1 to take the logit of b. */
PART void box_sigmoid(__local float4 *m, int16 t, int r, int lane) {
    ROLLED for (int c = lane; c < t.s2; c += 32) {
        float b = AT(t.s4, c, r);
        if (t.s5) {
            b = clamp(b, 0.0f, 1.0f);
            b = log(fmax(b, 1e-5f) / fmax(1.0f - b, 1e-5f));
        }
        AT(t.s1, c, r) = sigmoid(AT(t.s3, c, r) + b);
    }
}

/* Integral over the bins of each side, op/box's fdr, in eight parts: sums of exponentials, [side][part], then those by
 * the bins' offsets. t: room for 64, corners, bins' offsets. */
PART void sides(__local float4 *m, int16 t, __global const float *table, int r, int lane) {
    const int s = lane / 8 * BINS, part = lane % 8;
    float most = LOWEST, total = 0.0f, weighted = 0.0f;
    for (int i = 0; i < BINS; i++) most = fmax(most, AT(t.s2, s + i, r));
    for (int i = part; i < BINS; i += 8) {
        const float e = ist_exp_float(AT(t.s2, s + i, r) - most);
        total += e;
        weighted = fma(e, table[t.s3 + i], weighted);
    }
    AT(t.s1, lane, r) = total;
    AT(t.s1, 32 + lane, r) = weighted;
}

/* t: out, integrals at, first boxes, scale. */
PART void sides_box(__local float4 *m, int16 t, int r, int lane) {
    if (lane >= 2) return;
    const float scale = as_float(t.s4), half_scale = 0.5f * scale;
    float integral[2];
    for (int k = 0; k < 2; k++) {
        float total = 0.0f, weighted = 0.0f;
        for (int i = 0; i < 8; i++) {
            total += AT(t.s2, (2 * k + lane) * 8 + i, r);
            weighted += AT(t.s2, 32 + (2 * k + lane) * 8 + i, r);
        }
        integral[k] = weighted / total;
    }
    const float centre = AT(t.s3, lane, r), size = AT(t.s3, 2 + lane, r);
    const float lo = centre - (half_scale + integral[0]) * (size / scale);
    const float hi = centre + (half_scale + integral[1]) * (size / scale);
    AT(t.s1, lane, r) = (lo + hi) * 0.5f;
    AT(t.s1, 2 + lane, r) = hi - lo;
}

/* The four largest probabilities of each side and their mean, op/box's lqe. t: out, corners. */
PART void sides_best(__local float4 *m, int16 t, int r, int s) {
    if (s >= 4) return;
    float a = -INFINITY, b = a, c = a, d = a, total = 0.0f;
    for (int i = 0; i < BINS; i++) {
        float v = AT(t.s2, s * BINS + i, r), w;
        v = v != v ? -INFINITY : v;
        w = fmin(a, v), a = fmax(a, v), v = w;
        w = fmin(b, v), b = fmax(b, v), v = w;
        w = fmin(c, v), c = fmax(c, v), v = w;
        d = fmax(d, v);
    }
    for (int i = 0; i < BINS; i++) total += ist_exp_float(AT(t.s2, s * BINS + i, r) - a);
    const float4 p = ist_exp_float4((float4)(a, b, c, d) - a) / total;
    AT(t.s1, 5 * s, r) = p.x;
    AT(t.s1, 5 * s + 1, r) = p.y;
    AT(t.s1, 5 * s + 2, r) = p.z;
    AT(t.s1, 5 * s + 3, r) = p.w;
    AT(t.s1, 5 * s + 4, r) = (p.x + p.y + p.z + p.w) * 0.25f;
}

/* ---- matrix instructions ---- */

#define BLOCKS    4                  /* of 16 outputs, in a unit */
#define PIECES    16                 /* of 16 bytes, in a batch: four steps of 16 inputs for each block */

/* What is lost when v becomes halves. */
static inline float4 rest_of(float4 v, uint low, uint high) {
    const float2 a = floats_of(low), b = floats_of(high);
    return v - (float4)(a.x, a.y, b.x, b.y);
}

/* t of this and of the loop in the kernel: in, inputs, parts at, outputs, units across (of 64 outputs), parts, batches
 * of a unit, flags, distance of parts, 2^16 / units across, rounded up. A unit is 64 outputs and a part of
 * the inputs; a warp takes every eighth. */
PART void put_sums(__local float4 *m, int16 t, float (*sum)[4], int across, int part, int lane, int done) {
    ONLY(done);
    UNROLLED for (int i = 0; i < 4 * BLOCKS; i++) {
        const int o = across * 16 * BLOCKS + i / 2 * 8 + lane / 4;
        if (done && o < t.s4) AT(t.s3, part * t.s9 + o, lane % 4 * 2 + i % 2) = sum[i / 4][i % 4];
    }
}

/* sizes {rows of an item, steps, pieces of weights of a lane, turns of all steps}. Group (i, n): rows 8 i to
 * 8 i + 7 of item n. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
chain(__global const int16 *tape, __global const T *weights, __global const float *table, __global const int *limit,
      __global char *e0, __global char *e1, __global char *e2, __global char *e3, __global char *e4,
      __global char *e5, __global char *e6, __global char *e7, __global char *e8, __global char *e9,
      __global char *e10, __global char *e11, __global char *e12, __global char *e13, __global char *e14,
      __global char *e15, __global char *e16, __global char *e17, __global char *e18, __global char *e19,
      __global char *e20, __global char *e21, int4 sizes) {
    __local float4 room[SLOTS * ROWS / 4];
    __local int16 steps[16]; /* of the tape, ahead of their use */
    __global char *__local at[22];
    MATRIX_SCRATCH_OF(16)
    /* Not the array itself: see cl/README.md, "What to know". */
    __local float4 *const m = room + (sizes.y < 0);
    const int n = get_group_id(1), rows = sizes.x;
    const int lane = get_local_id(0) % 32, warp = get_local_id(0) / 32, g = lane / 4, q = lane % 4;
    const int row = get_group_id(0) * ROWS + warp;
    if (n >= *limit) return;
    ((__local int *)steps)[get_local_id(0)] =
        ((__global const int *)tape)[min((int)get_local_id(0) / 16, sizes.y - 1) * 16 + get_local_id(0) % 16];
    if (get_local_id(0) == 0) {
        at[0] = e0; at[1] = e1; at[2] = e2; at[3] = e3; at[4] = e4; at[5] = e5;
        at[6] = e6; at[7] = e7; at[8] = e8; at[9] = e9; at[10] = e10; at[11] = e11;
        at[12] = e12; at[13] = e13; at[14] = e14; at[15] = e15; at[16] = e16; at[17] = e17;
        at[18] = e18; at[19] = e19; at[20] = e20; at[21] = e21;
    }
    __global const uint4 *stream = (__global const uint4 *)weights + (size_t)warp * sizes.z * 32 + lane;
    uint piece[PIECES][4], low[4], high[4];
    float sum[BLOCKS][4];
    UNROLLED for (int i = 0; i < PIECES; i++) LOAD_PIECE(piece[i], stream + i * 32);
    int taken = PIECES * 32, pass = 0, batch = 0, round = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef IST_PTX
    for (int s = 0; s < sizes.y; s++) {
#define TURNS(count) ROLLED for (int turn = 0; turn < (count); turn++)
#else /* a turn of one step after the other: no loop with barriers within one (cl/README.md, "What to know") */
    for (int i = 0, s = 0, turn = 0; i < sizes.w; i++) {
#define TURNS(count)
#endif
        int16 t = steps[s & 15];
        const int word = t.s0, waits = word & GROUP_WAITS;
        t.s0 &= GROUP_WAITS - 1;
        if ((s & 7) == 0 && get_local_id(0) < 8 * 16) /* those eight to fifteen steps on */
            ((__local int *)steps)[((s + 8) & 15) * 16 + get_local_id(0)] =
                ((__global const int *)tape)[min(s + 8 + (int)get_local_id(0) / 16, sizes.y - 1) * 16 +
                                             get_local_id(0) % 16];
        switch (t.s0) {
        case LOAD_ROWS:
            load_row(m, t, at[t.s3], (__global const int *)at[t.s9], n, row, rows, warp, lane);
            break;
        case STORE_ROWS: store_row(m, t, at[t.s3], n, row, rows, warp, lane); break;
        case LINEAR_SUM: linear_sum(m, t, table, warp, lane); break;
        case ELTWISE: eltwise(m, t, warp, lane); break;
        case NORM: norm(m, t, table, warp, lane); break;
        case SAMPLE_AT: sample_at(m, t, table, warp, lane); break;
        case SAMPLE_SUM: sample_sum(m, t, (__global const T *)at[t.s3], n, warp, lane); break;
        case BOX_SIGMOID: box_sigmoid(m, t, warp, lane); break;
        case SIDES: sides(m, t, table, warp, lane); break;
        case SIDES_BOX: sides_box(m, t, warp, lane); break;
        case SIDES_BEST: sides_best(m, t, warp, lane); break;
        default: break; /* below: nothing that all work-items must reach is in a branch */
        }

        /* Inputs that count as floats take two turns, the second one with what rounding to half lost. */
        const int linear = t.s0 == MATRIX_LINEAR, passes = linear && t.s8 & EXACT ? 2 : 1, each = linear ? t.s7 : 1;
#ifdef IST_PTX
        round = 0;
#endif
        TURNS(LINEAR_TURNS(word)) {
            const int unit = round * 8 + warp, mine = linear && unit < t.s5 * t.s6, last = mine && pass == passes - 1;
            const int part = mine ? unit * t.sa >> 16 : 0, across = unit - part * t.s5, c0 = (part * each + batch) * 64;
            UNROLLED for (int e = 0; e < 4 * BLOCKS; e++) sum[e / 4][e % 4] = pass + batch ? sum[e / 4][e % 4] : 0.0f;
            UNROLLED for (int k = 0; k < 4; k++) {
                float4 x = quad_at((__local const float *)m + g * SLOTS + t.s1, c0 + k * 16 + q * 4, linear ? t.s2 : 0,
                                   linear && t.s8 & WHOLE);
                if (pass) x = rest_of(x, halves_of(x.x, x.y), halves_of(x.z, x.w));
                low[k] = halves_of(x.x, x.y);
                high[k] = halves_of(x.z, x.w);
            }
#define SUM(i)  sum[(i) % BLOCKS]
#define OWN(i)  piece[i]
#define LOW(i)  low[(i) / BLOCKS]
#define HIGH(i) high[(i) / BLOCKS]
#define NEXT(i)                                                                                                        \
    if (last) LOAD_PIECE(piece[i], stream + taken + (i) * 32)
            MATRIX_MULTIPLY_ALL(PIECES, SUM, OWN, LOW, HIGH, NEXT);
            taken += last ? PIECES * 32 : 0;
            put_sums(m, t, sum, across, part, lane, last && batch == each - 1);
            pass = linear && pass + 1 < passes ? pass + 1 : 0;
            batch = !linear || pass ? batch : batch + 1 < each ? batch + 1 : 0;
            round = !linear ? 0 : pass + batch ? round : round + 1;
        }

#ifdef IST_PTX
        if (!waits) {
            ROW_BARRIER();
            continue;
        }
#else
        const int last = turn + 1 >= LINEAR_TURNS(word);
        s += last ? 1 : 0;
        turn = last ? 0 : turn + 1;
        round = last ? 0 : round;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
