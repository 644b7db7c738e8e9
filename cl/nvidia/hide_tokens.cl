/* Constants of folded tokens (cl/nvidia/two_way_mma) that a prompt does not have: scores so low that no pixel sees them. y
 * [prompts][arg.rows][arg.width] halves, of which the last two rows have two halves for each token and head. */
__kernel void hide_tokens(__global uint *y, __global const int *counts, __global const int *limit,
                          hide_tokens_args arg) {
    const int column = (int)get_global_id(0), n = (int)get_global_id(1);
    if (n >= *limit || column < counts[n] * arg.heads) return;
    y[((size_t)n * arg.rows + arg.rows - 2) * (arg.width / 2) + column] = 0xfbfffbffu; /* twice -65504 */
}
