/* Which tokens of an image are seen where masks are cut out of letterboxed pictures (UPSCALE in graph/nodes.h). */
/* Columns and rows of the image's tokens that portable/mask sees. Of a picture of s pixels it reads the logits up to number
 * s / 4 + 3 / 8, rounded down (bilinear, with the neighbour behind), of which a token has four for its 16 pixels.
 * `content`: width and height of pictures. */
static inline int2 tokens_seen(__global const int *content, __global const int *image_of, int n,
                               const tokens_seen_args arg, int2 all) {
    if (!arg.content_ld) return all;
    const int2 size = vload2(0, content + image_of[n] * arg.content_ld + arg.content_c0);
    return min((size + 1) / arg.token_pixels + 1, all);
}
