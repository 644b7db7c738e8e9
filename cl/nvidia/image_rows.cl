/* Keys and values of an image (variants/absorbed.h) by groups of 256 work-items, alone or beside other groups of a launch
 * (behind nvidia/ptx). -D IN: the image's channels, a multiple of 32. The kernel's local array has at least 64 LD_X pieces
 * of 16 bytes. */
#define LD_X (IN / 8 + 1) /* uint4 from row to row */

/* Keys and values of rows [64 block, ..) of the image: 256 channels W x + beside, which is one row's of an
 * image. weights: fragments [32 blocks of eight outputs][IN / 32][lane][8 halves], of 32 outputs in the order in
 * which four work-items store eight in a row each. */
static inline void image_rows(__global half *to, __global const half *x, __global const uint4 *weights,
                              __global const half *beside, int block, const image_rows_args arg, __local uint4 *memory,
                              uint shared MATRIX_SCRATCH_PARAMETER) {
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, first = block * 64;
    uint w[4][IN / 32][4];
    UNROLL for (int c = 0; c < 4; c++)
        UNROLL for (int k = 0; k < IN / 32; k++)
            FETCH16(w[c][k], weights + ((warp * 4 + c) * (IN / 32) + k) * 32 + lane);
    for (int i = id; i < 64 * (IN / 8); i += 256)
        COPY16(shared + (i / (IN / 8) * LD_X + i % (IN / 8)) * 16,
               x + (size_t)min(first + i / (IN / 8), arg.all_rows - 1) * arg.x_ld + arg.x_c0 + i % (IN / 8) * 8, 16);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int rows = 0; rows < 64; rows += 16) {
        float sum[4][4];
        uint more[2][4];
        UNROLL for (int r = 0; r < 2; r++)
            FETCH16(more[r], beside + (size_t)((first + rows + g + 8 * r) % arg.length) * 256 + warp * 32 + t * 8);
        UNROLL for (int c = 0; c < 4; c++)
            UNROLL for (int e = 0; e < 4; e++) sum[c][e] = 0.0f;
        UNROLL for (int k = 0; k < IN / 32; k++) {
            uint a[2][4];
            UNROLL for (int i = 0; i < 2; i++)
                MATRIX_LOAD(a[i], shared + (rows + lane % 16) * (LD_X * 16) + (2 * k + i) * 32 + lane / 16 * 16);
            UNROLL for (int c = 0; c < 4; c++) {
                MATRIX_MULTIPLY(sum[c], a[0], w[c][k][0], w[c][k][1]);
                MATRIX_MULTIPLY(sum[c], a[1], w[c][k][2], w[c][k][3]);
            }
        }
        UNROLL for (int r = 0; r < 2; r++) {
            const int row = first + rows + g + 8 * r;
            uint y[4];
            UNROLL for (int c = 0; c < 4; c++) {
                const float2 f = floats_of(more[r][c]);
                y[c] = halves_of(sum[c][2 * r] + f.x, sum[c][2 * r + 1] + f.y);
            }
            if (row < arg.all_rows)
                *(__global uint4 *)(to + (size_t)row * 256 + warp * 32 + t * 8) = (uint4)(y[0], y[1], y[2], y[3]);
        }
    }
}
