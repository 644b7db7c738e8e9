/* Dense convolution as an implicit matrix product on the matrix unit of x86 CPUs (cpu/amx), as exact as products of
 * floats (PARTS = 3) or of bfloat16 (PARTS = 1): one work-item per group owns blocks of 32 pixels by 32 output
 * channels.
 *
 * Work is cut and laid out as cpu/conv_lines says. Scratch is [step of 32 inputs][part][pixel][32 inputs] of bfloat16,
 * with zeros beyond the last input and room for part_pixels pixels: a tile of 16 pixels is one KiB at any tap.
 * Weights are [column tile][tap][step][part][column / 16][pair of inputs][16 columns] of pairs (as
 * amx_split pairs inputs), padded with zeros; the bias is padded likewise, and is what the sums start with. Where
 * floats are one part, a tile from the second-level cache can take longer than its product, so that GROUP blocks in
 * turn are multiplied by CHUNK steps of weights, which stay with the sums in the first-level cache. Three parts are
 * multiplied six times, and a block's sums stay in tiles.
 *
 * Products are few instructions that take long. While a block is multiplied, the block before it is finished and
 * stored, and of a linear layer the pixels of the next item are laid out in the other half of scratch: an item is taken
 * before the one in hand is done. A linear layer of many inputs is made in slices of `depth` steps, so that an item has
 * enough pixels for each weight that comes from beyond the second-level cache; between slices its sums lie behind the
 * pixels in scratch.
 *
 * -D PARTS, ASM: cpu/amx's; NV = 2. Needs portable/vector with VL = 16, cpu/amx, cpu/conv_lines.
 * scratch holds what is laid out, for linear layers twice, and sums between slices. Grid: x = compute units, which
 * share out the items by `queue` (see prelude). */
#define STEP_BYTES ((size_t)PARTS * AMX_PANEL * sizeof(ushort)) /* of weights */
#if PARTS == 1
#define CHUNK 8 /* steps: 16 KiB of weights */
#define GROUP 4 /* blocks: 16 KiB of sums */
#else
#define CHUNK INT_MAX
#define GROUP 1
#endif
#define TOGETHER 2 /* rows that are stored at a time */

/* 32 inputs of a pixel, of which `left` exist, at x, or zeros where x is null: split, parts `part` bfloat16 apart. */
NOINLINE void lay_step(__global const TX *x, int left, __global ushort *to, size_t part) {
    float16 u = 0.0f, v = 0.0f;
    if (x && left > 0) u = input_part(x, left);
    if (x && left > 16) v = input_part(x + 16, left - 16);
    amx_split(u, v, (size_t)to, part);
}

static inline void lay_pixel(__global uint *scratch, int pixel, __global const TX *x, const part_t *m) {
    __global ushort *to = (__global ushort *)scratch + (size_t)pixel * AMX_DEPTH;
    const size_t part = (size_t)m->room * AMX_DEPTH;
    for (int c = 0; c < m->cin; c += AMX_DEPTH, to += PARTS * part) lay_step(x ? x + c : x, m->cin - c, to, part);
}

/* Address of the pixels of step i of tap `tap` that the part's results from p on see. */
static inline size_t tile_at(__global const uint *scratch, const part_t *m, int p, int tap, int i, size_t part) {
    const int ky = tap / m->kw;
    const size_t pixel = p + tap_pixel(m, ky, tap - ky * m->kw);
    return (size_t)scratch + (i * PARTS * part + pixel * AMX_DEPTH) * sizeof(ushort);
}

/* What is done beside products: rows of `tile` are stored, and where the next tile's will be is asked for, then steps
 * of the next item's pixels are laid out; all in all `rate` / 256 pieces in each pause. */
typedef struct {
    tile_t tile;
    const part_t *m;
    __global TY *y;
    __global const T *before, *after;
    conv_shape shape;
    epilogue_args epi;
    int soon, soon_col;   /* of the next tile: pixel of the row that is asked for, first channel */
    __global const TX *x; /* of the pixel in hand, whose `step` is next; x of the one behind it is x + ld */
    __global ushort *to;
    size_t part;
    int step, steps, cin, ld, pieces; /* pieces: left to be laid out */
    int due, rate;
    size_t coming; /* weights of the next column tile, which a group's first item asks for, `lines` in each pause */
    int lines;
} beside_t;

/* Stores the next TOGETHER rows of the tile where that is simple: all 32 channels of neighbouring pixels of a line.
 * Activations are made for all rows at a time, since each takes long. */
static inline bool store_together(beside_t *b) {
    const int mapped = EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE;
    tile_t *t = &b->tile;
    if (t->rows < TOGETHER || t->column + TOGETHER > b->m->width || t->col + NV * VL > b->shape.y_c)
        return false;
    const int p = t->first + t->line * b->m->width + t->column;
    size_t before[TOGETHER], after[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        before[i] = after[i] = p + i;
        if (!(b->epi.flags & mapped)) continue;
        const int all = (p + i) / b->shape.y_w, x = p + i - all * b->shape.y_w;
        const int n = all / b->shape.y_h, line = all - n * b->shape.y_h;
        before[i] = before_pixel(n, line, x, b->shape.y_h, b->shape.y_w, b->epi.flags);
        after[i] = after_pixel(n, line, x, b->shape.y_h, b->shape.y_w, b->epi.flags);
    }
    float16 v[TOGETHER * NV];
    for (int i = 0; i < TOGETHER * NV; i++) v[i] = t->sums[i];
    if (b->epi.flags & EPI_BEFORE)
        for (int i = 0; i < TOGETHER * NV; i++)
            v[i] += LOAD_TV(b->before + before[i / NV] * b->epi.before_ld + b->epi.before_c0 + t->col, i % NV * VL);
    switch (b->epi.act) {
    case ACT_RELU:
        for (int i = 0; i < TOGETHER * NV; i++) v[i] = max(v[i], (float16)(0.0f));
        break;
    case ACT_SILU:
        for (int i = 0; i < TOGETHER * NV; i++) v[i] = activate_float16(v[i], ACT_SILU);
        break;
    case ACT_GELU:
        for (int i = 0; i < TOGETHER * NV; i++) v[i] = activate_float16(v[i], ACT_GELU);
        break;
    case ACT_SIGMOID:
        for (int i = 0; i < TOGETHER * NV; i++) v[i] = activate_float16(v[i], ACT_SIGMOID);
        break;
    default: break;
    }
    if (b->epi.flags & EPI_LAB)
        for (int i = 0; i < TOGETHER * NV; i++)
            v[i] = fma(v[i], (float16)(b->epi.lab_scale), (float16)(b->epi.lab_bias));
    if (b->epi.flags & EPI_AFTER)
        for (int i = 0; i < TOGETHER * NV; i++)
            v[i] += LOAD_TV(b->after + after[i / NV] * b->epi.after_ld + b->epi.after_c0 + t->col, i % NV * VL);
    for (int i = 0; i < TOGETHER * NV; i++)
        STORE_YV(v[i], b->y + (size_t)(p + i / NV) * b->shape.y_ld + b->shape.y_c0 + t->col, i % NV * VL);
    t->rows -= TOGETHER;
    t->column += TOGETHER;
    t->sums += TOGETHER * NV;
    return true;
}

NOINLINE void beside_piece(beside_t *b) {
    if (b->tile.rows > 0) {
        __global TY *yp = b->y + (size_t)b->soon * b->shape.y_ld + b->shape.y_c0 + b->soon_col;
        __global const T *bp = b->before + (size_t)b->soon * b->epi.before_ld + b->epi.before_c0 + b->soon_col;
        for (int i = 0; i < TOGETHER; i++, b->soon++, yp += b->shape.y_ld, bp += b->epi.before_ld) {
            PREFETCH_WRITE(yp);
            PREFETCH_WRITE(yp + 16);
            if ((b->epi.flags & (EPI_BEFORE | EPI_BEFORE_UP2 | EPI_BEFORE_ONE)) == EPI_BEFORE) {
                PREFETCH(bp);
                PREFETCH(bp + 16);
            }
        }
        if (!store_together(b))
            store_rows(&b->tile, min(TOGETHER, b->tile.rows), b->m, b->y, b->before, b->after, b->shape, b->epi);
        return;
    }
    if (b->pieces == 0) return;
    const int c = b->step * AMX_DEPTH; /* no prefetch: its line would be kept from tiles for too long */
    lay_step(b->x + c, b->cin - c, b->to + b->step * PARTS * b->part, b->part);
    b->pieces--;
    if (++b->step == b->steps) {
        b->step = 0;
        b->x += b->ld;
        b->to += AMX_DEPTH;
    }
}
static inline void beside_begin(beside_t *b, int blocks, int pauses) {
    const int rows = (b->tile.rows + TOGETHER - 1) / TOGETHER, pieces = (b->pieces + blocks - 1) / blocks;
    b->due = 0;
    b->rate = (rows + pieces) * 256 / pauses + 1;
}
static inline void beside_pause(beside_t *b) {
    for (int i = 0; i < b->lines; i++, b->coming += 64) PREFETCH_L2(b->coming);
    for (b->due += b->rate; b->due >= 256; b->due -= 256) beside_piece(b);
}

NOINLINE void conv_group(__global const TX *restrict x, __global const uint *restrict w,
                         __global const float *restrict bias, __global uint *restrict scratch, __global TY *restrict y,
                         __global const T *restrict before, __global const T *restrict after,
                         __global const int *restrict limit, const conv_lines_args arg, __global int *queue,
                         const int4 group) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const bool linear = arg.is_linear != 0;
    const int items = min(shape.items, *limit), maps = linear ? min(items, 1) : items;
    const int all_lines = linear ? items * shape.y_h * shape.y_w : shape.y_h;
    const int chunks = maps * ((all_lines + arg.lines - 1) / arg.lines);
    const int col_tiles = (shape.y_c + AMX_BLOCK - 1) / AMX_BLOCK;
    const int col_chunks = (col_tiles + arg.col_tiles - 1) / arg.col_tiles;
    const int steps = (shape.x_c + AMX_DEPTH - 1) / AMX_DEPTH;
    const int depth = arg.depth, slices = (steps + depth - 1) / depth;
    const size_t part = (size_t)arg.part_pixels * AMX_DEPTH, panel = shape.kh * shape.kw * steps * STEP_BYTES;
    const size_t room = (size_t)arg.part_pixels * depth * PARTS * (AMX_DEPTH / 2);
    float16 sums[2][GROUP][AMX_BLOCK * NV];
    part_t m = {shape.x_h,  shape.x_w, shape.stride, shape.kh,
                shape.kw,   shape.top, shape.left,   min(shape.x_c, depth * AMX_DEPTH),
                shape.x_ld, arg.pitch, steps,        arg.part_pixels,
                0,          0,         shape.y_w};
    beside_t b = {.m = &m, .y = y, .before = before, .after = after, .shape = shape, .epi = epi, .part = part,
                  .ld = shape.x_ld};
    bool cold = true; /* weights lie beyond the second-level cache: all, before an item has been multiplied */
    int filled = -1, first_pixel = 0;
    scratch += (size_t)group.x * arg.scratch_pairs;
    __global uint *here = scratch, *there = scratch + (linear ? room : 0);
    const size_t saved = (size_t)(scratch + 2 * room);
    work_t work = work_begin(group.w, chunks * col_chunks, arg.backwards);
    int item = work_take(&work, queue);
    amx_begin();
    while (item >= 0) {
        const int col_chunk = arg.by_columns ? item / chunks : item % col_chunks;
        const int chunk = arg.by_columns ? item % chunks : item / col_chunks;
        if (chunk != filled) {
            filled = chunk;
            first_pixel = part_begin(&m, chunk, arg.lines, all_lines, linear, here, x, shape);
        }
        const int next = work_take(&work, queue), next_chunk = arg.by_columns ? next % chunks : next / col_chunks;
        const int next_first = (arg.by_columns ? next / chunks : next % col_chunks) * arg.col_tiles;
        const int end = (m.lines - 1) * m.pitch + m.width;
        const int first = col_chunk * arg.col_tiles, past = min(first + arg.col_tiles, col_tiles);
        /* Blocks end with lines where that makes no more of them. */
        const int run = (end + AMX_BLOCK - 1) / AMX_BLOCK, across = (m.width + AMX_BLOCK - 1) / AMX_BLOCK;
        const bool by_line = m.lines * across <= run;
        const int all_blocks = by_line ? m.lines * across : run;
        for (int slice = 0; slice < slices; slice++) {
            const bool last = slice + 1 == slices;
            const int here_steps = min(depth, steps - slice * depth), all_steps = shape.kh * shape.kw * here_steps;
            const int soon = last ? 0 : slice + 1, soon_line = (last ? next_chunk : chunk) * arg.lines;
            const int soon_count = min(arg.lines, all_lines - soon_line);
            const bool ahead = linear && (!last || (next >= 0 && (slices > 1 || next_chunk != filled)));
            b.step = 0;
            b.steps = min(depth, steps - soon * depth);
            b.cin = shape.x_c - soon * depth * AMX_DEPTH;
            b.pieces = ahead ? soon_count * b.steps : 0;
            b.x = x + (ahead ? (long)soon_line * shape.x_ld + shape.x_c0 + soon * depth * AMX_DEPTH : 0);
            b.to = (__global ushort *)there;
            int mine = 0, blocks = (past - first) * all_blocks;
            for (int tile = first; tile < past; tile++) {
                const size_t weights = (size_t)w + tile * panel + slice * depth * STEP_BYTES;
                const int pauses = all_blocks * all_steps * AMX_PAUSES;
                const int lines = (int)(all_steps * STEP_BYTES / 64);
                b.coming = weights + panel;
                if (tile + 1 == past)
                    b.coming = (size_t)w + (last ? next_first : first) * panel + soon * depth * STEP_BYTES;
                b.lines = cold && (tile + 1 < past || !last || next >= 0) ? (lines + pauses - 1) / pauses : 0;
                for (int at = 0; at < all_blocks; at += GROUP, mine ^= 1)
                    for (int step = 0, count; step < all_steps; step += count) {
                        count = min(CHUNK, all_steps - step);
                        const size_t chunk_at = weights + step * STEP_BYTES;
                        for (int g = 0; g < GROUP && at + g < all_blocks; g++) {
                            const size_t kept = saved + ((tile - first) * all_blocks + at + g) * sizeof sums[0][0];
                            const size_t block = last ? (size_t)sums[mine][g] : kept;
                            const int line = by_line ? (at + g) / across : 0;
                            const int p = line * m.pitch + (at + g - line * across) * AMX_BLOCK;
                            const int past_it = by_line ? line * m.pitch + m.width : end;
                            int tap = step / here_steps, i = step - tap * here_steps;
                            size_t a = tile_at(here, &m, p, tap, i, part);
                            const int row = p / m.pitch;
                            b.soon = first_pixel + p - row * (m.pitch - m.width);
                            b.soon_col = tile * AMX_BLOCK;
                            beside_begin(&b, blocks, count * AMX_PAUSES);
                            if (step | slice) amx_start(block, AMX_BLOCK, step ? block : kept, AMX_BLOCK);
                            else amx_start(block, AMX_BLOCK, (size_t)(bias + tile * AMX_BLOCK), 0);
                            for (int done = 0; done < count; done++) {
                                AMX_STEP(block, AMX_BLOCK, a, (size_t)AMX_DEPTH, part, chunk_at + done * STEP_BYTES,
                                         beside_pause(&b);)
                                a += PARTS * part * sizeof(ushort);
                                if (++i == here_steps) i = 0, a = tile_at(here, &m, p, ++tap, 0, part);
                            }
                            amx_finish(block, AMX_BLOCK);
                            if (step + count < all_steps) continue;
                            if (last)
                                b.tile = (tile_t){sums[mine][g], min(AMX_BLOCK, past_it - p), row,
                                                  p - row * m.pitch, first_pixel, tile * AMX_BLOCK};
                            blocks -= blocks > 1;
                        }
                    }
            }
            while (b.tile.rows > 0 || b.pieces > 0) beside_piece(&b);
            if (ahead) {
                __global uint *was = here;
                here = there;
                there = was;
            }
            if (ahead && last) {
                filled = next_chunk;
                first_pixel = soon_line;
                m.w = m.pitch = m.width = soon_count;
            }
        }
        cold = arg.streams != 0;
        work_finish(&work, queue);
        item = next;
    }
    amx_end();
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const uint *restrict w, __global const float *restrict bias,
     __global uint *restrict scratch, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, conv_lines_args arg, __global int *queue) {
    conv_group(x, w, bias, scratch, y, before, after, limit, arg, queue, THIS_GROUP);
}
