/* Keys and values of an image that its prompts read (variants/absorbed.h), on matrix instructions with half storage; goes
 * with nvidia/ptx and nvidia/image_rows, which has the arguments. Group i: 64 rows. -D IN: channels of the image. */
#define THREADS 256

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
image_keys(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
           __global const half *restrict beside, image_rows_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[64 * LD_X];
    image_rows(y, x, weights, beside, get_group_id(0), arg, memory, SHARED(memory) MATRIX_SCRATCH_ARGUMENT);
}
