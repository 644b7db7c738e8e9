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

ist_padding_reuse_args ist_padding_reuse_args_of(ist_padding_reuse a, int h) {
    return (ist_padding_reuse_args){
        .content_ld = a.content.ld, .content_c0 = a.content.c0, .step = a.step, .above = a.above, .past = h - a.below};
}
