#include "variants/padding_reuse.h"

#include "base/mem.h"

ist_padding_reuse ist_padding_reuse_behind(ist_padding_reuse in, int h, int stride) {
    if (!ist_has(in.content)) return in;
    int out = (h - 1) / stride + 1, last = h - in.below - 2; /* a window begins a row above its place */
    in.step *= stride;
    in.above = ist_div_up(in.above + 1, stride);
    in.below = last < 0 ? out : out - 1 - last / stride;
    return in;
}

ist_arg ist_padding_reuse_ints(ist_padding_reuse a, int h) {
    return (ist_arg)IST_INT8(a.content.ld, a.content.c0, a.step, a.above, h - a.below);
}
