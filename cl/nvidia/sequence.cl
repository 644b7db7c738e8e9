/* A sequence (cl/portable/sequence.cl) on matrix instructions; needs nvidia/ptx, nvidia/sequence_rows and half storage. The tape is that of
 * portable/sequence but for linear layers; attention is a launch of its own (nvidia/attention), between two pieces of a sequence.
 *
 * A group takes eight rows, a warp each where work is on single rows; what lies between stays in local memory as
 * floats, [row][channel]. In linear layers the rows are the instructions' columns: (16 outputs x 16 inputs) (16 inputs
 * x 8 rows); a warp has all inputs of its outputs, so that bias, activation and addends follow in registers. Such a
 * sequence takes at least the time in which a compute unit reads all weights from the second-level cache (some 60 bytes a
 * clock on an H200), so that reading should not pause: the weights of the whole launch lie in the order in which each
 * lane uses them, and each lane asks for them sixteen pieces ahead, across the steps in between; groups without rows
 * ask for them before that, so that they are in that cache. Loads are asked for in batches wherever a loop would wait
 * for each. With two warps for a scheduler time is the number of instructions: steps are few and short.
 *
 * SPLIT=2: two groups have the same rows. What both make lies in the local memory of both; of a linear layer each makes
 * half of the outputs, of one behind it the sums of half of the inputs, which they hand to each other through the
 * second-level cache (nvidia/sequence_rows, meet); of deformable attention half of the heads. Both must run at once:
 * there are no more groups than compute units, and the two begin one after the other.
 *
 * HALVES: whatever a step makes lies in local memory as halves, too, which linear layers take as they are; 0: they round
 * floats.
 *
 * -D SLOTS: channels of local memory, 8 more than a multiple of 32 (ROW_OF). -D THREADS=256. -D DATA: floats of the
 * table (biases and the like) that local memory has room for; 0: it stays where it is. -D HALVES: channels of a row as
 * halves, 16 more than a multiple of 64, or 0. -D STEPS: at least as many as a tape has, a multiple of 16. -D MAIL:
 * words of a row that a group can hand over. */
#define PIECES    16 /* of 16 bytes, in a batch: 16 outputs and 16 inputs each */
#define SUMS      4
/* The inputs that a lane has of step k of 16: of a row's 32 the eighth q as halves, of 16 the fourth as floats. */
#if HALVES
#define LANE_INPUTS  8
#define INPUTS_AT(k) ((k) / 2 * 32 + (k) % 2 * 4)
#else
#define LANE_INPUTS  4
#define INPUTS_AT(k) ((k)*16)
#endif
/* Inputs of steps 2 J and 2 J + 1. */
#if HALVES
#define TAKE_INPUTS(J)                                                                                                 \
    do {                                                                                                               \
        const uint4 v = HALVES8(from, c0 + (J) * 32, g);                                                               \
        inputs[2 * (J)] = v.xy;                                                                                        \
        inputs[2 * (J) + 1] = v.zw;                                                                                    \
    } while (0)
#else
#define TAKE_INPUTS(J)                                                                                                 \
    do {                                                                                                               \
        const float4 v = AT4(from, c0 + (J) * 32, g), u = AT4(from, c0 + (J) * 32 + 16, g);                            \
        inputs[2 * (J)] = (uint2)(halves_of(v.x, v.y), halves_of(v.z, v.w));                                           \
        inputs[2 * (J) + 1] = (uint2)(halves_of(u.x, u.y), halves_of(u.z, u.w));                                       \
    } while (0)
#endif
#define SUM(i) sum[(i) % SUMS]
#ifdef IST_PTX
#define MULTIPLY_BY(EACH)                                                                                              \
    UNROLLED for (int i = 0; i < PIECES; i++)                                                                          \
        MATRIX_MULTIPLY(SUM(i), piece[i], inputs[i / (EACH)].x, inputs[i / (EACH)].y)
#define MULTIPLY_ALL()
#else /* nothing that all work-items must reach is in a branch */
#define OWN(i)  piece[i]
#define LOW(i)  inputs[(i) >> fold].x
#define HIGH(i) inputs[(i) >> fold].y
#define THEN(i)
#define MULTIPLY_BY(EACH)
#define MULTIPLY_ALL() MATRIX_MULTIPLY_ALL(PIECES, SUM, OWN, LOW, HIGH, THEN)
#endif
/* Of pieces of which EACH have the same inputs. */
#define TURN_OF(EACH)                                                                                                  \
    do {                                                                                                               \
        UNROLLED for (int j = 0; j < PIECES / (EACH) / 2; j++) TAKE_INPUTS(j);                                         \
        MULTIPLY_BY(EACH);                                                                                             \
    } while (0)

/* What is lost when v becomes halves. */
static inline float4 rest_of(float4 v) {
    const float2 a = floats_of(halves_of(v.x, v.y)), b = floats_of(halves_of(v.z, v.w));
    return v - (float4)(a.x, a.y, b.x, b.y);
}

/* t of this and of the loop in the kernel: in, inputs, out, outputs, units, batches of a unit, flags, bias (-1: none),
 * act, before (-1: none), after (-1: none), fold. A unit is 16 << fold outputs, of which a batch has 256 >> fold
 * inputs; batches are whole and inputs count as halves but where fold is 2; a warp takes every eighth. Piece i is of
 * block i % (1 << fold) of outputs and is added to sum i % 4. mail: what this group hands over of its row 0. */
PART void put_sums(__local float4 *m, int16 t, TABLE const float *table, __global uint *mail, float (*sum)[4],
                   int unit, int lane, int done) {
    ONLY(done);
    UNROLLED for (int e = 0; e < 4; e++) {
        if (done && t.sc < 2) {
            sum[0][e] += sum[2][e];
            sum[1][e] += sum[3][e];
        }
        if (done && t.sc < 1) sum[0][e] += sum[1][e];
    }
    const int r0 = ROW_OF(lane % 4 * 2), r1 = ROW_OF(lane % 4 * 2 + 1);
    float2 bias[SUMS];
    UNROLLED for (int b = 0; b < SUMS; b++) {
        const int o = min(((unit << t.sc) + b) * 16 + lane / 4 * 2, t.s4 - 1 & ~1);
        bias[b] = (float2)(0.0f);
        if (done && t.s8 >= 0 && !(b >> t.sc)) bias[b] = *(TABLE const float2 *)(table + t.s8 + o);
    }
    UNROLLED for (int b = 0; b < SUMS; b++) {
        const int o = ((unit << t.sc) + b) * 16 + lane / 4 * 2;
        if (!done || b >> t.sc || o >= t.s4) continue;
        float2 v = (float2)(sum[b][0], sum[b][2]) + bias[b], u = (float2)(sum[b][1], sum[b][3]) + bias[b];
#if SPLIT > 1
        if (t.s8 <= MAILED) {
            mail_pair(mail + r0 * 2 * MAIL + MAILED - t.s8 + o, v);
            mail_pair(mail + r1 * 2 * MAIL + MAILED - t.s8 + o, u);
        }
#endif
        if (t.sa >= 0) v += AT2(t.sa, o, r0), u += AT2(t.sa, o, r1);
        if (t.s9 == ACT_RELU) v = max(v, (float2)(0.0f)), u = max(u, (float2)(0.0f));
        if (t.sb >= 0 && t.s9 <= ACT_RELU) v += AT2(t.sb, o, r0), u += AT2(t.sb, o, r1);
        put_pair(m, t.s3 + o, r0, v, o + 1 < t.s4);
        put_pair(m, t.s3 + o, r1, u, o + 1 < t.s4);
    }
    if (!done || t.s9 <= ACT_RELU) return;
    ROLLED for (int b = 0; b < 1 << t.sc; b++) {
        const int o = ((unit << t.sc) + b) * 16 + lane / 4 * 2;
        if (o >= t.s4) continue;
        float4 v = activate_float4((float4)(AT2(t.s3, o, r0), AT2(t.s3, o, r1)), t.s9);
        if (t.sb >= 0) v += (float4)(AT2(t.sb, o, r0), AT2(t.sb, o, r1));
        put_pair(m, t.s3 + o, r0, v.xy, o + 1 < t.s4);
        put_pair(m, t.s3 + o, r1, v.zw, o + 1 < t.s4);
    }
}

/* constants: DATA floats, if any; mails: [n][row][2][MAIL], zeros. Group (SPLIT i + side, n): rows 8 i to 8 i + 7 of
 * item n, as far as there are any; those beyond ask for weights. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
sequence(__global const int16 *tape, __global const T *weights, __global const float *constants, __global const int *limit,
      __global char *e0, __global char *e1, __global char *e2, __global char *e3, __global char *e4,
      __global char *e5, __global char *e6, __global char *e7, __global char *e8, __global char *e9,
      __global char *e10, __global char *e11, __global char *e12, __global char *e13, __global char *e14,
      __global char *e15, __global char *e16, __global char *e17, __global char *e18, __global char *e19,
      __global char *e20, __global char *e21, __global uint *mails, nvidia_sequence_args arg) {
    __local float4 room[SLOTS * ROWS / 4 + HALVES * ROWS / 8];
    __local int16 words[STEPS];
#if DATA
    __local float4 data[DATA / 4];
    __local const float *const table = PLACE_OF(const float, data);
#else
    __global const float *const table = constants;
#endif
    __global char *__local at[22];
    MATRIX_SCRATCH_OF(16)
    __local float4 *const m = PLACE_OF(float4, room);
    __local int16 *const steps = PLACE_OF(int16, words);
    const int n = get_group_id(1), rows = arg.rows;
    const int lane = get_local_id(0) % 32, warp = get_local_id(0) / 32, g = ROW_OF(lane / 4), q = lane % 4;
    const int row = get_group_id(0) / SPLIT * ROWS + warp, side = get_group_id(0) % SPLIT;
    const int groups = (rows + ROWS - 1) / ROWS * SPLIT, more = (int)get_group_id(0) - groups;
    if (more >= 0) {
        /* A group without rows: weights on their way to the second-level cache, in the order of their use. */
        const int all = arg.lane_pieces * 32 * SPLIT, step = (get_num_groups(0) - groups) * ITEMS;
        for (int i = more * ITEMS + get_local_id(0); i < all; i += step)
            ASK_FOR((__global const uint4 *)weights + (i / 4 % (8 * SPLIT) * arg.lane_pieces + i / (32 * SPLIT)) * 32 +
                    i % 4 * 8);
        return;
    }
    const int items = *limit, first = arg.first_steps, count = side ? arg.second_steps : first;
    __global const int *const own = (__global const int *)(tape + side * first);
#if DATA
    for (int i = get_local_id(0); i < DATA / 4; i += ITEMS) COPY_FLOATS(data + i, constants + i * 4);
#endif
    int word_of[STEPS * 16 / ITEMS];
    UNROLLED for (int i = 0; i < STEPS * 16 / ITEMS; i++)
        word_of[i] = own[min(i * ITEMS + (int)get_local_id(0), count * 16 - 1)];
    if (get_local_id(0) == 0) {
        at[0] = e0; at[1] = e1; at[2] = e2; at[3] = e3; at[4] = e4; at[5] = e5;
        at[6] = e6; at[7] = e7; at[8] = e8; at[9] = e9; at[10] = e10; at[11] = e11;
        at[12] = e12; at[13] = e13; at[14] = e14; at[15] = e15; at[16] = e16; at[17] = e17;
        at[18] = e18; at[19] = e19; at[20] = e20; at[21] = e21;
    }
    __global uint *const mail = mails + ((size_t)n * groups / SPLIT * ROWS + row - warp) * 2 * MAIL;
    __global const uint4 *stream = (__global const uint4 *)weights + (size_t)(side * 8 + warp) * arg.lane_pieces * 32 + lane;
    uint piece[PIECES][4];
    uint2 inputs[PIECES];
    float sum[SUMS][4];
    UNROLLED for (int i = 0; i < PIECES; i++) LOAD_PIECE(piece[i], stream + i * 32);
    int taken = PIECES * 32, pass = 0, batch = 0, round = 0;
    UNROLLED for (int i = 0; i < STEPS * 16 / ITEMS; i++)
        ((__local int *)steps)[i * ITEMS + get_local_id(0)] = word_of[i];
    if (n >= items) {
#if DATA
        COPY_WAIT(0);
#endif
        return;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef IST_PTX
    for (int s = 0; s < count; s++) {
#define TURNS(count) ROLLED for (int turn = 0; turn < (count); turn++)
#else /* a turn of one step after the other: no loop with barriers within one (cl/README.md, "What to know") */
    for (int i = 0, s = 0, turn = 0; i < arg.turns; i++) {
#define TURNS(count)
#endif
        int16 t = steps[s];
        const int word = t.s0, waits = word & GROUP_WAITS, begins = s == 0;
        t.s0 &= GROUP_WAITS - 1;
        /* What an earlier step made for others: slot, columns; tensor, flags; ld, c0. */
        if (t.sd) {
            const int8 earlier = {0, t.sd & 0xffff, t.sd >> 16, t.se & 0xff, t.sf & 0xffff, t.sf >> 16, t.se >> 8, 0};
            store_row(m, earlier, at[earlier.s3], n, row, rows, warp, lane);
        }
        ROW_MEETS();
        switch (t.s0) {
        case LOAD_ROWS:
#ifdef IST_PTX /* elsewhere each by itself */
            if (t.sa) {
                load_rows(m, steps, t.sa & 0xf, t.sa >> 4, at, n, row, rows, warp, lane);
                s += (t.sa >> 4) - 1;
                break;
            }
#endif
            load_row(m, t, at[t.s3], (__global const int *)at[t.s9], n, row, rows, warp, lane);
            break;
        case STORE_ROWS: store_row(m, t.lo, at[t.s3], n, row, rows, warp, lane); break;
        case ELTWISE: eltwise(m, t, warp, lane); break;
        case MATRIX_NORM: norm(m, t, table, warp, lane); break;
#if SPLIT > 1
        case MATRIX_MEET:
            meet(m, t, table, mail + warp * 2 * MAIL + (side ^ 1) * MAIL, warp, lane);
            break;
#endif
        case SAMPLE_AT: sample_at(m, t, table, warp, lane); break;
        case SAMPLE_SUM: sample_sum(m, t, (__global const T *)at[t.s3], mail + side * MAIL, n, warp, lane); break;
        case BOX_SIGMOID: box_sigmoid(m, t, warp, lane); break;
        case MATRIX_SIDES: sides(m, t, table, warp, lane); break;
        case SIDES_BEST: sides_best(m, t, warp, lane); break;
        default: break; /* below: nothing that all work-items must reach is in a branch */
        }

#ifdef IST_PTX
        const int linear = 1; /* where there are turns */
        round = 0;
#else
        const int linear = t.s0 == MATRIX_LINEAR;
#endif
        /* Inputs that count as floats take two turns, the second one with what rounding to half lost. */
        const int passes = linear && t.s7 & EXACT ? 2 : 1, each = linear ? t.s6 : 1, fold = linear ? t.sc : 2;
        TURNS(word / LINEAR_TURN) {
            const int unit = round * 8 + warp, mine = linear && unit < t.s5, last = mine && pass == passes - 1;
            const int c0 = batch * (16 * PIECES >> fold) + q * LANE_INPUTS;
            UNROLLED for (int e = 0; e < 4 * SUMS; e++) sum[e / 4][e % 4] = pass + batch ? sum[e / 4][e % 4] : 0.0f;
            const int from = linear ? t.s1 + (batch * 2 >= each ? t.s7 / JUMP : 0) : 0, most = linear ? t.s2 : 1;
            /* What counts here is the number of instructions. */
            if (fold == 0) {
                TURN_OF(1);
            } else if (fold == 1) {
                TURN_OF(2);
            } else if (WHOLE_HALVES(t.s7)) {
                TURN_OF(4);
            } else {
                UNROLLED for (int j = 0; j < PIECES / 4; j++) {
                    const int at = c0 + INPUTS_AT(j), left = most - at;
                    float4 x = AT4(from, min(at, most - 1 & ~3), g);
                    if (pass) x = rest_of(x);
                    const uint low = halves_of(x.x, x.y), high = halves_of(x.z, x.w);
                    inputs[j].x = left > 1 ? low : left > 0 ? low & 0xffffu : 0;
                    inputs[j].y = left > 3 ? high : left > 2 ? high & 0xffffu : 0;
                }
                MULTIPLY_BY(4);
            }
            MULTIPLY_ALL();
            UNROLLED for (int i = 0; i < PIECES; i++)
                if (last) LOAD_PIECE(piece[i], stream + taken + i * 32);
            taken += last ? PIECES * 32 : 0;
            put_sums(m, t, table, mail + side * MAIL, sum, unit, lane, last && batch == each - 1);
            pass = linear && pass + 1 < passes ? pass + 1 : 0;
            batch = !linear || pass ? batch : batch + 1 < each ? batch + 1 : 0;
            round = !linear ? 0 : pass + batch ? round : round + 1;
        }

#ifdef IST_PTX
        if (!waits) {
            ROW_MEETS();
            continue;
        }
#else
        const int last = turn + 1 >= word / LINEAR_TURN;
        s += last ? 1 : 0;
        turn = last ? 0 : turn + 1;
        round = last ? 0 : round;
#endif
        if (begins) COPY_WAIT(0); /* of table and rows; not at each step, since it waits for weights, too */
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
