/* The whole detector: backbone, encoder, memory, decoder. */
#include "models/dfine.h"

/* Room for the token sequence and where each level lies in it. */
static ist_dfine_memory memory_for(const ist_net *net, const ist_dfine_arch *arch, int n, int h, int w) {
    ist_dfine_memory m = {.levels = arch->levels};
    int tokens = 0;
    for (int l = 0; l < m.levels; l++) {
        int shift = l + 6 - arch->levels; /* the coarsest level has stride 32 */
        m.level[l] = (ist_level){.h = h >> shift, .w = w >> shift, .start = tokens, .points = arch->points[l]};
        tokens += m.level[l].h * m.level[l].w;
    }
    m.tokens = ist_plan_tensor(net->plan, n, 1, tokens, arch->dim, IST_ELEM_T);
    return m;
}

/* Where the maps of a single image are written in place; with more images a level's maps do not lie side by side in the
 * memory, and the places are empty. */
static ist_pyramid places_in(const ist_dfine_memory *m) {
    ist_pyramid places = {.levels = m->levels};
    for (int l = 0; l < m->levels && m->tokens.n == 1; l++) {
        const ist_level *level = &m->level[l];
        places.maps[l] = ist_view(ist_rows(m->tokens, level->start, level->h * level->w), 1, level->h, level->w);
    }
    return places;
}

static void copy_levels(const ist_net *net, const ist_dfine_memory *m, const ist_pyramid *maps) {
    for (int l = 0; l < m->levels; l++)
        ist_op_copy_rows(net->plan, maps->maps[l], m->tokens, m->level[l].start, "decoder.memory");
}

static void encode(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image, const ist_dfine_memory *memory) {
    ist_pyramid places = places_in(memory);
    ist_plan_narrow(net->plan, true);
    ist_plan_stage(net->plan, "detector_backbone");
    ist_pyramid maps = ist_hgnetv2(net, arch, image);
    ist_plan_stage(net->plan, "detector_encoder");
    maps = ist_hybrid_encoder(net, arch, maps, arch->decoder_proj ? (ist_pyramid){0} : places);
    ist_plan_narrow(net->plan, false);
    for (int l = 0; l < maps.levels && arch->decoder_proj; l++)
        maps.maps[l] = ist_conv_norm(net, maps.maps[l], &(ist_conv_opts){.into = places.maps[l]}, /* [n,h,w,D] */
                                     "decoder.input_proj.%d", l);
    if (image.n > 1) copy_levels(net, memory, &maps);
    ist_tap(net, memory->tokens, "dec.memory");
}

static bool accepts(ist_plan *plan, const ist_checkpoint_info *info, const ist_dfine_arch *arch, ist_tensor image) {
    if (ist_plan_status(plan)) return false;
    if (!arch) {
        ist_plan_fail(plan, IST_E_WEIGHTS, "the checkpoint is %s, not a D-FINE", ist_model_name(info->kind));
        return false;
    }
    if (image.n < 1 || image.h < 32 || image.w < 32 || image.h % 32 || image.w % 32 || image.c != 3) {
        ist_plan_fail(plan, IST_E_ARGUMENT, "D-FINE reads [n,h,w,3] with h and w divisible by 32, got [%d,%d,%d,%d]",
                      image.n, image.h, image.w, image.c);
        return false;
    }
    int tokens = 0;
    for (int l = 0; l < arch->levels; l++) tokens += (image.h >> (5 - l)) * (image.w >> (5 - l));
    if (tokens >= IST_DFINE_QUERIES) return true;
    ist_plan_fail(plan, IST_E_ARGUMENT, "input %d x %d gives %s %d tokens, fewer than its %d queries", image.w, image.h,
                  ist_model_name(info->kind), tokens, IST_DFINE_QUERIES);
    return false;
}

ist_dfine_result ist_dfine_forced(ist_plan *plan, const ist_weights *weights, const ist_checkpoint_info *info,
                                  ist_tensor image, ist_tensor force_index) {
    ist_net net = {.plan = plan, .weights = weights};
    const ist_dfine_arch *arch = ist_dfine_arch_of(info->kind);
    if (!accepts(plan, info, arch, image)) return (ist_dfine_result){0};
    ist_dfine_memory memory = memory_for(&net, arch, image.n, image.h, image.w);
    encode(&net, arch, image, &memory);
    ist_plan_stage(plan, "detector_decoder");
    ist_dfine_result result = ist_dfine_decoder(&net, arch, &memory, force_index);
    return ist_plan_status(plan) ? (ist_dfine_result){0} : result;
}

ist_dfine_result ist_dfine(ist_plan *plan, const ist_weights *weights, const ist_checkpoint_info *info,
                           ist_tensor image) {
    return ist_dfine_forced(plan, weights, info, image, (ist_tensor){0});
}
