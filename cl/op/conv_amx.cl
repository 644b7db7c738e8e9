/* Dense convolution as an implicit matrix product of bfloat16 on the matrix unit of x86 CPUs (isa/amx): one work-item
 * per group owns blocks of 32 pixels by 32 output channels.
 *
 * Work is cut and laid out as isa/conv_lines says. Scratch is [step of 32 inputs][pixel][32 inputs] of bfloat16,
 * with zeros beyond the last input and room for in.s5 pixels: a tile of 16 pixels is one KiB at any tap.
 * Weights are [column tile][tap][step][column / 16][pair of inputs][16 columns] of pairs, padded with zeros; the
 * bias is padded likewise, and is what the sums start with. A tile from the second-level cache can take longer than its
 * product, so that GROUP blocks in turn are multiplied by CHUNK steps of weights, which stay with the sums in the
 * first-level cache. While a block is multiplied, the one before it is finished and stored, some rows after every step:
 * products are few instructions that take long.
 *
 * -D ASM, PARTS = 1: isa/amx's; NV = 2. Needs isa/vector with VL = 16, isa/bf16, isa/amx, isa/conv_lines.
 * in = {h, w, ld, c0, cin, pixels of a step in scratch, 0, 0}, win = {kh, kw, stride, top, left, linear?, 0, 0},
 * out = {n, h, w, ld, c0, cout, pixels of a line in scratch, 0}, tiles = {lines, column tiles, order, pairs of
 * scratch}. order: 1: items of the same columns follow each other, else those of the same lines; 2: they are taken
 * backwards. Grid: x = compute units, which share out the items by `queue` (see prelude). */
#define STEP_BYTES (AMX_PANEL * sizeof(ushort)) /* of weights */
#define CHUNK      8                            /* steps: 16 KiB of weights */
#define GROUP      4                            /* blocks: 16 KiB of sums */

static inline void lay_pixel(__global uint *scratch, int pixel, __global const TX *x, const part_t *m) {
    __global ushort *to = (__global ushort *)scratch + (size_t)pixel * AMX_DEPTH;
    const size_t next = (size_t)m->room * AMX_DEPTH;
    for (int step = 0, c = 0; step < m->step; step++, to += next)
        for (int i = 0; i < AMX_DEPTH / 16; i++, c += 16)
            vstore16(bf16_round(x && c < m->cin ? input_part(x + c, m->cin - c) : (float16)(0.0f)), i, to);
}

/* Address of the pixels of step i of tap `tap` that the part's results from p on see. */
static inline size_t tile_at(__global const uint *scratch, const part_t *m, int p, int tap, int i, size_t next) {
    const int ky = tap / m->kw;
    const size_t pixel = p + tap_pixel(m, ky, tap - ky * m->kw);
    return (size_t)scratch + (i * next + pixel * AMX_DEPTH) * sizeof(ushort);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const uint *restrict w, __global const float *restrict bias,
     __global uint *restrict scratch, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi,
     float4 lab, int4 tiles, __global int *queue) {
    const bool linear = win.s5 != 0;
    const int items = min(out.s0, *limit), maps = linear ? min(items, 1) : items;
    const int all_lines = linear ? items * out.s1 * out.s2 : out.s1;
    const int chunks = maps * ((all_lines + tiles.x - 1) / tiles.x);
    const int col_tiles = (out.s5 + AMX_BLOCK - 1) / AMX_BLOCK, col_chunks = (col_tiles + tiles.y - 1) / tiles.y;
    const int steps = (in.s4 + AMX_DEPTH - 1) / AMX_DEPTH;
    const size_t next = (size_t)in.s5 * AMX_DEPTH, panel = win.s0 * win.s1 * steps * STEP_BYTES;
    const int all_steps = win.s0 * win.s1 * steps;
    float16 sums[2][GROUP][AMX_BLOCK * NV];
    part_t m = {in.s0, in.s1, win.s2, win.s0, win.s1, win.s3, win.s4, in.s4, in.s2, out.s6, steps, in.s5, 0, 0, out.s2};
    int filled = -1, first_pixel = 0;
    scratch += (size_t)get_group_id(0) * tiles.w;
    work_t work = work_begin((int)get_num_groups(0), chunks * col_chunks, tiles.z & 2);
    amx_begin();
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int col_chunk = tiles.z & 1 ? item / chunks : item % col_chunks;
        const int chunk = tiles.z & 1 ? item % chunks : item / col_chunks;
        if (chunk != filled) {
            filled = chunk;
            first_pixel = part_begin(&m, chunk, tiles.x, all_lines, linear, scratch, x, in, out);
        }
        const int end = (m.lines - 1) * m.pitch + m.width;
        const int first = col_chunk * tiles.y, past = min(first + tiles.y, col_tiles);
        tile_t before_it = {0, 0, 0, 0, 0, 0};
        int mine = 0;
        for (int tile = first; tile < past; tile++)
            for (int group = 0; group < end; group += GROUP * AMX_BLOCK, mine ^= 1)
                for (int step = 0, count; step < all_steps; step += count) {
                    count = min(CHUNK, all_steps - step);
                    const size_t chunk_at = (size_t)w + tile * panel + step * STEP_BYTES;
                    for (int p = group, g = 0; p < end && g < GROUP; p += AMX_BLOCK, g++) {
                        const int share = (before_it.rows + count - 1) / count;
                        const size_t block = (size_t)sums[mine][g];
                        int tap = step / steps, i = step - tap * steps;
                        size_t a = tile_at(scratch, &m, p, tap, i, next);
                        amx_start(block, AMX_BLOCK, step ? block : (size_t)(bias + tile * AMX_BLOCK),
                                  step ? AMX_BLOCK : 0);
                        for (int done = 0; done < count; done++) {
                            AMX_STEP(block, AMX_BLOCK, a, AMX_DEPTH, (size_t)0, chunk_at + done * STEP_BYTES, )
                            store_rows(&before_it, min(share, before_it.rows), &m, y, before, after, out, epi, lab);
                            a += next * sizeof(ushort);
                            if (++i == steps) i = 0, a = tile_at(scratch, &m, p, ++tap, 0, next);
                        }
                        amx_finish(block, AMX_BLOCK);
                        if (step + count < all_steps) continue;
                        const int line = p / m.pitch;
                        before_it = (tile_t){sums[mine][g], min(AMX_BLOCK, end - p), line, p - line * m.pitch,
                                             first_pixel,   tile * AMX_BLOCK};
                    }
                }
        store_rows(&before_it, before_it.rows, &m, y, before, after, out, epi, lab);
    }
    amx_end();
    work_end(&work, queue);
}
