/* Products of isa/amx with other work beside them: the matrix unit works while the vector units finish what it made
 * before. Needs isa/tile, isa/amx.
 *
 * A rest_t is what is left to do: sums, which get bias, residual and activation and are split or stored, 32 columns of
 * a row at a time and row by row, since a core waits for few lines at a time and only lines that follow each other
 * come by themselves; and, with -D UNITS, units of the operator's own (rest_unit), which need nothing of those rows.
 * The next product does as many of them as it is told, a few in each of its pauses, and asks for lines that will be
 * needed. */

/* From row to row of a plane: an odd number of cache lines, so that 16 rows of a tile lie in as many sets. */
#define PITCH(channels) (((channels) / 32 | 1) * 32)

typedef struct {
    const float *sums; /* [..][ld] */
    int ld, across;    /* pieces of 32 columns that a row has */
    int piece, pieces; /* done, and to be done with the next product */
    int act;
    __global const float *bias, *add; /* bias [32 across], residual [..][ld_add]; or 0 */
    __global float *y;                /* result [..][ldy], or 0: it is split, to `to` [PARTS][plane / pitch][pitch] */
    int ld_add, ldy, pitch, plane;
    size_t to;
    int unit, units;                      /* as pieces */
    size_t weights, near, near_end;       /* lines to ask for: `lines` of weights a pause, and one up to near_end */
    int lines, done, total, due, rate;
} rest_t;

#ifdef UNITS
NOINLINE void rest_unit(const rest_t *b, int i);
#endif

NOINLINE void rest_piece(const rest_t *b, int piece) {
    const int row = piece / b->across, j = (piece - row * b->across) * 32;
    float16 v[2];
    for (int i = 0; i < 2; i++) {
        v[i] = vload16(i, b->sums + row * b->ld + j);
        if (b->bias) v[i] += vload16(i, b->bias + j);
        if (b->add) v[i] += vload16(i, b->add + (size_t)row * b->ld_add + j);
    }
    activate_all(v, 2, b->act);
    for (int i = 0; i < 2; i++) {
        if (b->y)
            vstore16(v[i], i, b->y + (size_t)row * b->ldy + j);
        else
            amx_split(v[i], b->to + (row * b->pitch + j + i * 16) * sizeof(ushort), b->plane);
    }
}

static inline void rest_next(rest_t *b) {
    b->done++;
#ifdef UNITS
    if (b->piece == b->pieces) {
        rest_unit(b, b->unit++);
        return;
    }
#endif
    rest_piece(b, b->piece++);
}

static inline void rest_begin(rest_t *b, int pauses) {
    b->done = b->due = 0;
    b->total = b->pieces - b->piece + b->units - b->unit;
    b->rate = b->total * 256 / pauses + 1;
}
static inline void rest_pause(rest_t *b) {
    for (int i = 0; i < b->lines; i++, b->weights += 64) PREFETCH_L2(b->weights);
    if (b->near < b->near_end) {
        PREFETCH_L2(b->near);
        b->near += 64;
    }
    for (b->due += b->rate; b->done < b->total && b->done * 256 < b->due;) rest_next(b);
}
static inline void rest_finish(rest_t *b) {
    while (b->done < b->total) rest_next(b);
}
/* All of it, without a product. */
static inline void rest_all(rest_t *b) {
    rest_begin(b, 1);
    rest_finish(b);
}

/* to[32][ldc] = (add ? to : 0) + the product of rows [part][32][pitch], parts `plane` apart, and panel, while b is done. */
NOINLINE void rest_product(rest_t *b, float *to, size_t ldc, const ushort *rows, size_t pitch, size_t plane,
                           __global const ushort *panel, int steps, bool add) {
    size_t sums = (size_t)to, a = (size_t)rows, w = (size_t)panel;
    rest_begin(b, steps * AMX_PAUSES);
    if (add)
        amx_start(sums, ldc, sums, ldc);
    else
        amx_zero(sums, ldc);
    for (int i = 0; i < steps; i++, a += AMX_DEPTH * sizeof(ushort), w += PARTS * AMX_PANEL * sizeof(ushort)) {
        AMX_STEP(sums, ldc, a, pitch, plane, w, rest_pause(b);)
    }
    amx_finish(sums, ldc);
    rest_finish(b);
}
