/* A sequence: many operators on the same rows (queries, tokens) in one launch. A group of 256 takes four rows from the
 * first operator to the last; what lies between stays in local memory as floats, [channel][row], a float4 per channel.
 *
 * The program is data: `tape` has an int16 per step, the first number says which; variants/tape.c writes it. A
 * step reads and writes whole channels of local memory ("slots", positions in float4), and ends at the one barrier.
 * Constants: `weights` of T, matrices [in][out rounded up to 4] one after the other; `table` of float. e0 .. e21 are
 * the tensors outside.
 *
 * Goes with codes/tape and portable/distribution. -D SLOTS: float4 of local memory. */
#define ITEMS  256
#define AHEAD  8 /* loads at once */
/* Four elements of T on their way: fetched in batches of BATCH, so that as many loads are under way. FETCH
 * of a machine's part keeps them there where a compiler would move each to its use and wait for every one. */
#ifdef IST_HALF
#if defined(__x86_64__) || defined(__aarch64__)
#define BATCH     8 /* with 16 some compilers give NaN where several threads run groups */
#else
#define BATCH     16
#endif
#define QUAD       uint2
#define VALUES(q)  quad_values(q)
static inline float4 quad_values(uint2 q) {
    return vload_half4(0, (const __private half *)&q);
}
#else
#define BATCH    8
#define QUAD      float4
#define VALUES(q) (q)
#endif
#ifndef FETCH /* a machine's part may have one */
#define FETCH(p) (*(__global const QUAD *)(p))
#endif

/* One row's value. */
#define AT(slot, c, r) (((__local float *)m)[((slot) + (c)) * 4 + (r)])

static float outside(__global const char *p, int i, int flags) {
#ifdef IST_HALF
    if (!(flags & FLOATS)) return LOAD((__global const T *)p, i);
#endif
    return ((__global const float *)p)[i];
}

/* t: slot, columns, tensor, ld, c0, flags, 1 with an index, tokens, index. */
static void load_rows(__local float4 *m, int16 t, __global const char *p, __global const int *index, int n, int first,
                      int rows) {
    const int tokens = t.s7 ? t.s8 : rows, width = t.s6 & QUADS ? 4 : 1, across = t.s2 / width;
    for (int i = get_local_id(0); i < across * 4; i += ITEMS) {
        const int r = i / across, c = (i - r * across) * width;
        int row = min(first + r, rows - 1);
        if (t.s7) row = clamp(index[n * rows + row], 0, tokens - 1);
        const int from = ((t.s6 & ONE_ITEM ? 0 : n) * tokens + row) * t.s4 + t.s5 + c;
        if (width == 1) {
            AT(t.s1, c, r) = outside(p, from, t.s6);
            continue;
        }
#ifdef IST_HALF
        const float4 v = t.s6 & FLOATS ? *(__global const float4 *)((__global const float *)p + from)
                                       : VALUES(FETCH((__global const T *)p + from));
#else
        const float4 v = FETCH((__global const T *)p + from);
#endif
        AT(t.s1, c, r) = v.x;
        AT(t.s1, c + 1, r) = v.y;
        AT(t.s1, c + 2, r) = v.z;
        AT(t.s1, c + 3, r) = v.w;
    }
}

/* t: slot, columns, tensor, ld, c0, flags. */
static void store_rows(__local const float4 *m, int16 t, __global char *p, int n, int first, int rows) {
    for (int i = get_local_id(0); i < t.s2 * 4; i += ITEMS) {
        const int r = i / t.s2, c = i - r * t.s2, at = (n * rows + first + r) * t.s4 + t.s5 + c;
        if (first + r >= rows) break;
        const float v = ((__local const float *)m)[(t.s1 + c) * 4 + r];
#ifdef IST_HALF
        if (!(t.s6 & FLOATS)) {
            STORE(v, (__global T *)p, at);
            continue;
        }
#endif
        ((__global float *)p)[at] = v;
    }
}

/* Sums over a part of the inputs: t: in, inputs, parts at, blocks of four outputs, parts, inputs per part, weights
 * at. */
static void linear_part(__local float4 *m, int16 t, __global const T *weights) {
    const int part = get_local_id(0) / t.s4, block = get_local_id(0) - part * t.s4, ld = t.s4 * 4;
    if (part >= t.s5) return;
    int k = part * t.s6;
    const int end = min(k + t.s6, t.s2);
    float4 a0 = (float4)(0.0f), a1 = a0, a2 = a0, a3 = a0;
    __global const T *w = weights + t.s7 + k * ld + block * 4;
    __local const float4 *x = m + t.s1;
    QUAD now[BATCH], later[BATCH];
    const int whole = (end - k) / BATCH * BATCH; /* loads beyond it repeat its last row: none is conditional */
#define FETCH_ROWS(v, from)                                                                                            \
    _Pragma("unroll") for (int u = 0; u < BATCH; u++) v[u] = FETCH(w + min((from) + u, whole - 1) * ld)
#define USE_ROWS(v, from)                                                                                              \
    _Pragma("unroll") for (int u = 0; u < BATCH; u++) {                                                               \
        const float4 in = x[k + (from) + u], f = VALUES(v[u]);                                                         \
        a0 = fma(in, (float4)(f.x), a0);                                                                               \
        a1 = fma(in, (float4)(f.y), a1);                                                                               \
        a2 = fma(in, (float4)(f.z), a2);                                                                               \
        a3 = fma(in, (float4)(f.w), a3);                                                                               \
    }
    if (whole > 0) {
        int i = 0;
        FETCH_ROWS(now, 0);
        for (; i + BATCH < whole; i += 2 * BATCH) { /* no load behind a condition: compilers would move it there */
            FETCH_ROWS(later, i + BATCH);
            USE_ROWS(now, i);
            FETCH_ROWS(now, i + 2 * BATCH);
            USE_ROWS(later, i + BATCH);
        }
        if (i < whole) USE_ROWS(now, i);
        k += whole;
        w += whole * ld;
    }
    for (; k < end; k++, w += ld) {
        const float4 v = VALUES(FETCH(w)), in = x[k];
        a0 = fma(in, (float4)(v.x), a0);
        a1 = fma(in, (float4)(v.y), a1);
        a2 = fma(in, (float4)(v.z), a2);
        a3 = fma(in, (float4)(v.w), a3);
    }
    __local float4 *to = m + t.s3 + part * ld + block; /* [part][output % 4][output / 4] */
    to[0] = a0;
    to[t.s4] = a1;
    to[2 * t.s4] = a2;
    to[3 * t.s4] = a3;
}

/* t: out, outputs, parts at, blocks, parts, bias (-1: none), act, before (-1: none), after (-1: none).
 * bias: those of this work-item's outputs, of which it has at most four. */
static void linear_sum(__local float4 *m, int16 t, float4 bias) {
    for (int o = get_local_id(0); o < t.s2; o += ITEMS, bias = bias.yzww) {
        float4 v = (float4)(t.s6 < 0 ? 0.0f : bias.x);
        __local const float4 *part = m + t.s3 + (o & 3) * t.s4 + (o >> 2);
        for (int i = 0; i < t.s5; i++) v += part[i * t.s4 * 4];
        if (t.s8 >= 0) v += m[t.s8 + o];
        v = activate_float4(v, t.s7);
        if (t.s9 >= 0) v += m[t.s9 + o];
        m[t.s1 + o] = v;
    }
}

/* Of this work-item's outputs in the LINEAR_SUM t. */
static float4 biases(int16 t, __global const float *table) {
    const int from = max((int)t.s6, 0), last = t.s6 < 0 ? 0 : t.s2 - 1, o = get_local_id(0);
    return (float4)(table[from + min(o, last)], table[from + min(o + ITEMS, last)],
                    table[from + min(o + 2 * ITEMS, last)], table[from + min(o + 3 * ITEMS, last)]);
}

/* t: out, columns, a, b, mode, low, high, gates. */
static void eltwise(__local float4 *m, int16 t) {
    for (int c = get_local_id(0); c < t.s2; c += ITEMS) {
        float4 v = m[t.s3 + c];
        if (t.s5 & GATED)
            v = activate_float4(m[t.s8 + c], ACT_SIGMOID) * v +
                activate_float4(m[t.s8 + t.s2 + c], ACT_SIGMOID) * m[t.s4 + c];
        else if (t.s5 & PRESENT)
            v += m[t.s4 + (t.s5 & ONE_COLUMN ? 0 : c)];
        if (t.s5 & CLAMPED) v = clamp(v, (float4)(as_float(t.s6)), (float4)(as_float(t.s7)));
        m[t.s1 + c] = v;
    }
}

/* t: slot, columns, room for 64, gamma, beta, eps, act. In place. NORM_PART: 32 lanes each make the sum of their columns and
 * that of the squares around their own mean; NORM_OUT adds these, with the squares of means around the mean of all (Chan,
 * Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances). */
static void norm_part(__local float4 *m, int16 t) {
    const int lane = get_local_id(0), c = t.s2, own = (c - lane + 31) / 32;
    __local const float4 *x = m + t.s1;
    if (lane >= 32) return;
    float4 sum = (float4)(0.0f), squares = sum;
    for (int i = lane; i < c; i += 32) sum += x[i];
    const float4 mean = sum / (float)max(own, 1);
    for (int i = lane; i < c; i += 32) squares = fma(x[i] - mean, x[i] - mean, squares);
    m[t.s3 + lane] = sum;
    m[t.s3 + 32 + lane] = squares;
}

static void norm_out(__local float4 *m, int16 t, __global const float *table) {
    const int lane = get_local_id(0), c = t.s2, own = min(lane, c - 1), each = c / 32, longer = c % 32;
    const float own_gamma = table[t.s4 + own], own_beta = table[t.s5 + own]; /* on their way while sums are made */
    __local float4 *x = m + t.s1;
    __local const float4 *sums = m + t.s3, *squares = sums + 32;
    float4 a = (float4)(0.0f), b = a;
    for (int i = 0; i < 32; i += 2) {
        a += sums[i];
        b += sums[i + 1];
    }
    const float4 mean = (a + b) / (float)c;
    const float whole = 1.0f / (float)max(each, 1), more = 1.0f / (float)(each + 1);
    a = b = (float4)(0.0f);
    for (int i = 0; i < 32; i++) { /* a lane without columns has zeros */
        const float count = (float)(each + (i < longer)), share = i < longer ? more : whole;
        const float4 away = fma((float4)(share), sums[i], -mean);
        a += squares[i];
        b = fma(away * count, away, b);
    }
    const float4 scale = 1.0f / sqrt((a + b) / (float)c + as_float(t.s6));
    for (int i = lane; i < c; i += ITEMS) {
        const float gamma = i < ITEMS ? own_gamma : table[t.s4 + i], beta = i < ITEMS ? own_beta : table[t.s5 + i];
        x[i] = activate_float4(fma((x[i] - mean) * scale, (float4)(gamma), (float4)(beta)), t.s7);
    }
}

/* Deformable attention (portable/deform): where each point of each head of each row looks. t: offsets, weights, box, places
 * at, table [4][points], points, heads. Places: token [4][heads * points][row], then the weights. */
static void sample_at(__local float4 *m, int16 t, __global const float *table) {
    const int points = t.s6, all = t.s7 * points;
    __local int *token = (__local int *)(m + t.s4);
    __local float *weight = (__local float *)(m + t.s4 + 4 * all);
    __global const float *at = table + t.s5;
    for (int i = get_local_id(0); i < all * 4; i += ITEMS) {
        const int r = i & 3, hp = i >> 2, h0 = hp / points * points, p = hp - h0;
        float most = AT(t.s2, h0, r), sum = 0.0f;
        for (int k = 1; k < points; k++) most = fmax(most, AT(t.s2, h0 + k, r));
        for (int k = 0; k < points; k++) sum += ist_exp_float(AT(t.s2, h0 + k, r) - most);
        const float a = ist_exp_float(AT(t.s2, hp, r) - most) * (1.0f / sum);
        const float width = at[p], height = at[points + p], reach = at[3 * points + p];
        const int iw = (int)width, ih = (int)height, first = (int)at[2 * points + p];
        const float lx = fma(AT(t.s1, 2 * hp, r) * reach, AT(t.s3, 2, r), AT(t.s3, 0, r));
        const float ly = fma(AT(t.s1, 2 * hp + 1, r) * reach, AT(t.s3, 3, r), AT(t.s3, 1, r));
        const float x = fmin(fmax(fma(lx, width, -0.5f), -2.0f), width + 1.0f);
        const float y = fmin(fmax(fma(ly, height, -0.5f), -2.0f), height + 1.0f);
        const float fx = floor(x), fy = floor(y), bx = x - fx, by = y - fy;
        for (int k = 0; k < 4; k++) {
            const int px = (int)fx + (k & 1), py = (int)fy + (k >> 1);
            const int in = px >= 0 && px < iw && py >= 0 && py < ih;
            const float share = (k & 1 ? bx : 1.0f - bx) * (k >> 1 ? by : 1.0f - by) * a;
            token[(k * all + hp) * 4 + r] = first + clamp(py, 0, ih - 1) * iw + clamp(px, 0, iw - 1);
            weight[(k * all + hp) * 4 + r] = in ? share : 0.0f;
        }
    }
}

/* t: out, places at, tensor, ld, c0, flags, heads, points, head dimension, tokens. */
static void sample_sum(__local float4 *m, int16 t, __global const T *memory, int n) {
    const int points = t.s8, all = t.s7 * points, d = t.s9, quads = t.s7 * d / 4;
    __local const int *token = (__local const int *)(m + t.s2);
    __local const float *weight = (__local const float *)(m + t.s2 + 4 * all);
    const int base = (t.s6 & ONE_ITEM ? 0 : n) * t.sa * t.s4 + t.s5;
    for (int i = get_local_id(0); i < quads * 4; i += ITEMS) {
        const int r = i / quads, c = (i - r * quads) * 4, h = c / d;
        float4 a = (float4)(0.0f);
        for (int p0 = 0; p0 < points; p0 += 4) {
            QUAD v[16];
#pragma unroll
            for (int u = 0; u < 16; u++) {
                const int p = min(p0 + u / 4, points - 1);
                v[u] = FETCH(memory + base + token[((u & 3) * all + h * points + p) * 4 + r] * t.s4 + c);
            }
#pragma unroll
            for (int u = 0; u < 16; u++)
                if (p0 + u / 4 < points)
                    a = fma((float4)(weight[((u & 3) * all + h * points + p0 + u / 4) * 4 + r]), VALUES(v[u]), a);
        }
        AT(t.s1, c, r) = a.x;
        AT(t.s1, c + 1, r) = a.y;
        AT(t.s1, c + 2, r) = a.z;
        AT(t.s1, c + 3, r) = a.w;
    }
}

/* t: out, columns, a, b, 1 to take the logit of b. */
static void box_sigmoid(__local float4 *m, int16 t) {
    for (int i = get_local_id(0); i < t.s2 * 4; i += ITEMS) {
        const float b = AT(t.s4, i >> 2, i & 3);
        AT(t.s1, i >> 2, i & 3) = sigmoid(AT(t.s3, i >> 2, i & 3) + (t.s5 ? logit(b) : b));
    }
}

/* Integral over the bins of each side, portable/box's fdr: sixteen work-items a row's side, each of which leaves the sum of
 * its exponentials and that of these by the bins' offsets. t: sums at, corners, bins' offsets. */
#define SIDE_LANES (ITEMS / 16)
static void sides(__local float4 *m, int16 t, __global const float *table) {
    const int own = get_local_id(0) % 16, r = own & 3, s = own >> 2, lane = get_local_id(0) / 16;
    float most = LOWEST;
    float2 sum = (float2)(0.0f);
#define BIN(i) AT(t.s2, s * BINS + (i), r)
    for (int i = 0; i < BINS; i++) most = fmax(most, BIN(i));
    for (int i = lane; i < BINS; i += SIDE_LANES) {
        const float e = ist_exp_float(BIN(i) - most);
        sum += (float2)(e, e * table[t.s3 + i]);
    }
    ((__local float2 *)(m + t.s1))[lane * 16 + own] = sum;
}

static float integral(__local const float2 *sums) {
    float2 sum = (float2)(0.0f);
    for (int i = 0; i < SIDE_LANES; i++) sum += sums[i * 16];
    return sum.y / sum.x;
}

/* t: out, sums at, first boxes, scale. Two work-items a row, one for each axis. */
static void sides_box(__local float4 *m, int16 t) {
    const int r = get_local_id(0) & 3, axis = get_local_id(0) >> 2;
    if (axis >= 2) return;
    __local const float2 *sums = (__local const float2 *)(m + t.s2) + axis * 4 + r;
    const float2 moved = moved_sides(AT(t.s3, axis, r), AT(t.s3, 2 + axis, r), integral(sums), integral(sums + 8),
                                     as_float(t.s4));
    AT(t.s1, axis, r) = moved.x;
    AT(t.s1, 2 + axis, r) = moved.y;
}

/* The four largest probabilities of each side and their mean, portable/box's lqe. t: out, corners. */
static void sides_best(__local float4 *m, int16 t) {
    const int r = get_local_id(0) & 3, s = get_local_id(0) >> 2;
    if (s >= 4) return;
    float4 top, p;
    float total = 0.0f;
    FOUR_LARGEST(top, BIN)
    for (int i = 0; i < BINS; i++) total += ist_exp_float(BIN(i) - top.x);
#undef BIN
    p = probabilities(top, total);
    AT(t.s1, 5 * s, r) = p.x;
    AT(t.s1, 5 * s + 1, r) = p.y;
    AT(t.s1, 5 * s + 2, r) = p.z;
    AT(t.s1, 5 * s + 3, r) = p.w;
    AT(t.s1, 5 * s + 4, r) = mean_of(p);
}

/* Groups without rows: what all others are about to read is on its way to the device's cache before these wait for it. */
static void read_ahead(__local float4 *m, __global const T *weights, int quads, __global const float *table, int floats, int group,
                       int groups) {
    const int step = groups * ITEMS, own = group * ITEMS + get_local_id(0);
    float4 sum = (float4)(0.0f);
    for (int i = own; i < floats; i += step) sum.x += table[i];
    for (int i = own; i < quads; i += AHEAD * step) {
        QUAD v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) v[u] = FETCH(weights + 4 * min(i + u * step, quads - 1));
#pragma unroll
        for (int u = 0; u < AHEAD; u++) sum += VALUES(v[u]);
    }
    m[get_local_id(0)] = sum; /* nobody reads it: it keeps the loads */
}

/* Group (i, n): rows 4 i to 4 i + 3 of item n, as far as there are any; those beyond read ahead. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
sequence(__global const int16 *tape, __global const T *weights, __global const float *table, __global const int *limit,
      __global char *e0, __global char *e1, __global char *e2, __global char *e3, __global char *e4,
      __global char *e5, __global char *e6, __global char *e7, __global char *e8, __global char *e9,
      __global char *e10, __global char *e11, __global char *e12, __global char *e13, __global char *e14,
      __global char *e15, __global char *e16, __global char *e17, __global char *e18, __global char *e19,
      __global char *e20, __global char *e21, sequence_args arg) {
    __local float4 m[SLOTS];
    __local int16 steps[16]; /* of the tape, ahead of their use */
    __global char *__local at[22];
    const int n = get_group_id(1), first = get_group_id(0) * 4, rows = arg.rows;
    const int groups = (rows + 3) / 4;
    if ((int)get_group_id(0) >= groups) {
        read_ahead(m, weights + arg.weights_from, arg.weights_count / 4, table, arg.table_count,
                   (int)get_group_id(0) - groups, (int)get_num_groups(0) - groups);
        return;
    }
    if (n >= *limit) return;
    ((__local int *)steps)[get_local_id(0)] =
        ((__global const int *)tape)[min((int)get_local_id(0) / 16, arg.steps - 1) * 16 + get_local_id(0) % 16];
    if (get_local_id(0) == 0) {
        at[0] = e0; at[1] = e1; at[2] = e2; at[3] = e3; at[4] = e4; at[5] = e5;
        at[6] = e6; at[7] = e7; at[8] = e8; at[9] = e9; at[10] = e10; at[11] = e11;
        at[12] = e12; at[13] = e13; at[14] = e14; at[15] = e15; at[16] = e16; at[17] = e17;
        at[18] = e18; at[19] = e19; at[20] = e20; at[21] = e21;
    }
    float4 bias = (float4)(0.0f); /* asked for a step before its use */
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 0; s < arg.steps; s++) {
        const int16 t = steps[s & 15];
        if ((s & 7) == 0 && get_local_id(0) < 8 * 16) /* those eight to fifteen steps on */
            ((__local int *)steps)[((s + 8) & 15) * 16 + get_local_id(0)] =
                ((__global const int *)tape)[min(s + 8 + (int)get_local_id(0) / 16, arg.steps - 1) * 16 +
                                             get_local_id(0) % 16];
        switch (t.s0) {
        case LOAD_ROWS: load_rows(m, t, at[t.s3], (__global const int *)at[t.s9], n, first, rows); break;
        case STORE_ROWS: store_rows(m, t, at[t.s3], n, first, rows); break;
        case LINEAR_PART: /* the step behind it is LINEAR_SUM */
            bias = biases(steps[(s + 1) & 15], table);
            linear_part(m, t, weights);
            break;
        case LINEAR_SUM: linear_sum(m, t, bias); break;
        case ELTWISE: eltwise(m, t); break;
        case NORM_PART: norm_part(m, t); break;
        case NORM_OUT: norm_out(m, t, table); break;
        case SAMPLE_AT: sample_at(m, t, table); break;
        case SAMPLE_SUM: sample_sum(m, t, (__global const T *)at[t.s3], n); break;
        case BOX_SIGMOID: box_sigmoid(m, t); break;
        case SIDES: sides(m, t, table); break;
        case SIDES_BOX: sides_box(m, t); break;
        default: sides_best(m, t);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
