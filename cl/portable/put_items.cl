/* Items of x that take the places of those of `into` (PUT_ITEMS of graph/nodes.h). Work-item (v, i): value v of item i. */
__kernel void put_items(__global float *into, __global const float *x, __global const int *counts,
                        __global const int *limit, put_items_args arg) {
    const int v = (int)get_global_id(0), i = (int)get_global_id(1), owner = i / arg.each;
    if (v >= arg.values || owner >= *limit || counts[owner] <= arg.above) return;
    const size_t pixel = (size_t)i * (arg.values / arg.channels) + v / arg.channels;
    const int channel = v % arg.channels;
    into[pixel * arg.into_ld + arg.into_c0 + channel] = x[pixel * arg.x_ld + arg.x_c0 + channel];
}
