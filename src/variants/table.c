/* The table of kernel variants (table.inc), for the machines that are built: ISTHMUS_MACHINE_CPU and so on. */
#include "variants/absorbed.h"
#include "variants/conv.h"
#include "variants/lanes.h"
#include "variants/portable/sequence.h"

#ifdef ISTHMUS_MACHINE_CPU
#include "variants/cpu/sequence.h"
#include "variants/cpu/weights.h"
#define IF_CPU(...) __VA_ARGS__
#else
#define IF_CPU(...)
#endif
#ifdef ISTHMUS_MACHINE_NVIDIA
#include "variants/nvidia/sequence.h"
#include "variants/nvidia/stage.h"
#include "variants/nvidia/two_way.h"
#define IF_NVIDIA(...) __VA_ARGS__
#else
#define IF_NVIDIA(...)
#endif
#ifdef ISTHMUS_MACHINE_MATRIX
#define IF_MATRIX(...) __VA_ARGS__
#else
#define IF_MATRIX(...)
#endif
#define IF_PORTABLE(...) __VA_ARGS__

/* Every family is a constant somewhere. */
#define V(kind, name, machine, needs, storage, family, ...)          IF_##machine(extern const ist_family family;)
#define N(kind, name, machine, needs, without, storage, family, ...) IF_##machine(extern const ist_family family;)
#define S                                                            V
#define T                                                            N
#include "variants/table.inc"
#undef V
#undef N
extern const ist_absorbed_kernels ist_cpu_absorbed, ist_portable_absorbed_256, ist_portable_absorbed_64;

#define TILE(op, ...) (&(const ist_conv_tile){op, __VA_ARGS__}), op
#define WINOGRAD_TILE(op, ...) (&(const ist_conv_tile){op, __VA_ARGS__}), op " portable/winograd"
#define SPLIT_TILE(op, ...) (&(const ist_conv_tile){op, __VA_ARGS__}), op " portable/conv_sum"
#define LANES(...)    (&(const ist_lanes){__VA_ARGS__})
#define PANEL(n)      (&(const ist_cpu_panel){n})
#define LARGE(yes)    (&(const bool){yes})
#define NUMBER(n)     (&(const int){n})
#define FIRST(a, ...)     a
#define SECOND(a, b, ...) b
#define LINE(kind, name, machine, needs, without, storage, family, ...)                                                \
    IF_##machine({kind, #name, IST_MACHINE_##machine, needs, without, IST_STORAGE_##storage, &(family),                \
                  FIRST(__VA_ARGS__, ), SECOND(__VA_ARGS__, NULL, )}, )
#define V(kind, name, machine, needs, storage, family, ...)                                                            \
    LINE(IST_NODE_##kind, name, machine, needs, 0, storage, family, __VA_ARGS__)
#define N(kind, name, machine, needs, without, storage, family, ...)                                                   \
    LINE(IST_NODE_##kind, name, machine, needs, without, storage, family, __VA_ARGS__)
#undef S
#undef T
#define S(kind, name, machine, needs, storage, family, ...)                                                            \
    LINE(IST_SPAN_##kind, name, machine, needs, 0, storage, family, __VA_ARGS__)
#define T(kind, name, machine, needs, without, storage, family, ...)                                                   \
    LINE(IST_SPAN_##kind, name, machine, needs, without, storage, family, __VA_ARGS__)
static const ist_variant table[] = {
#include "variants/table.inc"
};

enum { COUNT = sizeof table / sizeof *table };

int ist_variant_count(void) {
    return COUNT;
}

const ist_variant *ist_variant_at(int index) {
    return &table[index];
}

const ist_variant *ist_variants_of(ist_node_kind kind, int *count) {
    int first = 0;
    *count = 0;
    while (first < COUNT && table[first].kind != kind) first++;
    while (first + *count < COUNT && table[first + *count].kind == kind) ++*count;
    return &table[first];
}

const ist_variant *ist_variant_named(ist_node_kind kind, const char *name) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(v[i].name, name)) return &v[i];
    return NULL;
}
