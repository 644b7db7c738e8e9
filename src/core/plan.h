/* The plan: a frame recorded once as a list of kernel launches, placed in one arena, then replayed.
 *
 * Recording: a kernel variant asks for tensors and constants and appends launches. Failure is sticky: after the first
 * one every call is a no-op that returns an empty tensor, and ist_plan_finish reports it, so variants carry no error
 * handling. Finishing: lifetimes become arena offsets, constants are uploaded, programs are built,
 * arguments are set. Replay: ist_enqueue in a loop; no argument is set except for external buffers that were rebound.
 *
 * A plan belongs to one thread. It borrows the device. */
#ifndef IST_CORE_PLAN_H
#define IST_CORE_PLAN_H

#include "core/arena.h"
#include "base/tensor.h"
#include "core/tuning.h"
#include "device/device.h"

typedef struct ist_plan ist_plan;

typedef struct ist_plan_options {
    int guard_bytes; /* tests: keep this many bytes of pattern on both sides of every tensor, none shared */
    bool taps;       /* tests: keep tapped tensors to the end of the frame */
    bool half;       /* storage type of IST_ELEM_T */
    bool bf16;       /* ist_plan_bf16 is true where the model says ist_plan_reduced */
    bool notes;      /* keep the problems that ops choose rows for: ist_plan_notes */
    const ist_tuning *tuning; /* choices that were measured, or NULL; borrowed until the plan is finished */
    bool overlap;    /* the branches (ist_plan_fork) run at the same time: for a device with a side lane */
    bool late;       /* for compiling only (below): constants have no values, finishing makes no kernels */
    bool apart;      /* every launch is one, for profiles: see ist_launch.shares */
    unsigned flip;   /* capabilities taken for the opposite of what they are, in a plan that is only looked at */
} ist_plan_options;

ist_status ist_plan_begin(ist_device *device, const ist_plan_options *options, ist_plan **plan, ist_error *err);
void ist_plan_close(ist_plan **plan);

/* ---- recording by several threads ---- */

/* Most of the time that recording takes goes to the values of constants. Shadows are recorded from the same graph as the
 * plan, each by a thread of its own, and put constants where the plan's are: of every part one of them makes the values,
 * whoever comes to it first. */
ist_status ist_plan_shadow(ist_plan *plan, ist_plan **shadow, ist_error *err);
/* Begins part number `part`, the same one for the same part of the graph: whether its constants have values here. */
void ist_plan_part(ist_plan *plan, int part);
/* Closes it; what it failed with, the plan fails with. */
void ist_plan_shadow_end(ist_plan *plan, ist_plan **shadow);

/* ---- recording ---- */

/* Makes the plan fail (first failure wins); returns the code. */
ist_status ist_plan_fail(ist_plan *plan, ist_status code, const char *fmt, ...) IST_PRINTF(3, 4);
/* IST_OK, or the sticky failure. */
ist_status ist_plan_status(const ist_plan *plan);
/* The sticky error, for code that calls functions taking an ist_error while recording. */
ist_error *ist_plan_error(ist_plan *plan);
unsigned ist_plan_caps(const ist_plan *plan);
ist_device *ist_plan_device(const ist_plan *plan);
/* Compute units of its device, or what ist_plan_share leaves of them; at least 1. */
int ist_plan_units(const ist_plan *plan);
/* What is recorded from here on is to run on this part of the units, 1 for all: other launches run beside it. */
void ist_plan_share(ist_plan *plan, double part);
/* options.overlap */
bool ist_plan_overlaps(const ist_plan *plan);
bool ist_plan_half(const ist_plan *plan);
/* Whether constants have values: not where options.late or where another thread makes them (below), so that what takes
 * long is not done for nothing. What a launch is does not depend on it. */
bool ist_plan_has_values(const ist_plan *plan);

/* Between ist_plan_reduced(plan, true) and (plan, false), dense products may round what they multiply to bfloat16, if
 * the plan has options.bf16: what ist_plan_bf16 says. */
void ist_plan_reduced(ist_plan *plan, bool narrow);
bool ist_plan_bf16(const ist_plan *plan);

/* A new dense tensor in the arena; contents undefined until a launch writes it. */
ist_tensor ist_plan_tensor(ist_plan *plan, int n, int h, int w, int c, ist_elem elem);
/* `into` when it is a tensor (its extents are checked against the arguments), else a new one. */
ist_tensor ist_plan_into(ist_plan *plan, ist_tensor into, int n, int h, int w, int c, ist_elem elem, const char *label);
/* A tensor the host fills before replay (tests and tools; ist_plan_write_*): alive for the whole frame. */
ist_tensor ist_plan_input(ist_plan *plan, int n, int h, int w, int c, ist_elem elem);
/* Like ist_plan_tensor, but it keeps its contents from frame to frame and starts as zeros: track state. */
ist_tensor ist_plan_persistent(ist_plan *plan, int n, int h, int w, int c, ist_elem elem);
/* Counters by which the work-groups of a CPU kernel share out its work (work_next in cl/prelude.cl): the same tensor
 * for every launch, for as many groups as the device has compute units; pass it as IST_INOUT. */
ist_tensor ist_plan_work_queue(ist_plan *plan);
/* Whether the next launch with that queue takes its work backwards: every second call says so. */
bool ist_plan_work_turn(ist_plan *plan);
/* A buffer the pipeline binds before replay (ist_plan_bind): the upload, the packet, mask storage. `ext` is a small
 * number of the caller's choosing (0..15). The view is of bytes. */
ist_tensor ist_plan_external(ist_plan *plan, int ext, ist_elem elem);
/* A read-only tensor with known contents (weights, tables), copied now. Equal contents are not merged. */
ist_tensor ist_plan_const(ist_plan *plan, const void *data, int n, int h, int w, int c, ist_elem elem,
                          const char *what);
/* False, and the plan fails naming `what`, when activations are stored as half and one of `count` values is finite but
 * beyond half's range: then no device could compute with it alike. ist_plan_const asks this itself for IST_ELEM_T. */
bool ist_plan_representable(ist_plan *plan, const float *values, size_t count, const char *what);
/* A constant of raw bytes for packed weights; passed to kernels as an opaque pointer. */
ist_tensor ist_plan_const_bytes(ist_plan *plan, const void *data, size_t bytes, const char *what);

/* Counts on the device: between ist_plan_limit(plan, count) and ist_plan_limit(plan, (ist_tensor){0}), items n >=
 * *count of every op need no work. Kernels take the count as `__global const int *limit` and leave early. */
void ist_plan_limit(ist_plan *plan, ist_tensor count);
/* What an op passes as its `limit` argument: the tensor set by ist_plan_limit, else a constant that never limits. */
ist_tensor ist_plan_current_limit(ist_plan *plan);

/* Launches from here on belong to this stage of the frame ("preprocess"); for profiles. `stage` is a static string. */
void ist_plan_stage(ist_plan *plan, const char *stage);

/* Launches from here on to the next call are a unit: the programs that it is the first to use are built as one, which
 * shortens the start on CPU platforms. Programs of launches before the first call are built one by one. Units should be
 * few, and the same whatever the rest of the frame is, so that frames of other options find them compiled. */
void ist_plan_unit(ist_plan *plan);

/* Launches from here on belong to a section, 1 to 31, which replays may leave out, or with 0 to none. What a section
 * makes and others read has no contents where it was left out. */
void ist_plan_section(ist_plan *plan, int section);

/* Launches from ist_plan_fork to ist_plan_side are a branch, those from there to ist_plan_join another, which neither
 * reads nor writes what the first one writes. The first goes on with those behind the join up to one that needs the
 * second. With options.overlap the second runs on the device's side lane, beside the first. Once in a plan, in this
 * order; calls without the others mean nothing. */
void ist_plan_fork(ist_plan *plan);
void ist_plan_side(ist_plan *plan);
void ist_plan_join(ist_plan *plan);

/* For an op that has several rows for a problem: the one that was measured fastest, or NULL: its heuristic decides.
 * With options.notes the problem is noted. */
const ist_tuned *ist_plan_tuned(ist_plan *plan, const char *family, const char *shape);
/* The problems noted, each once; `param` is how many launches it has. */
const ist_tuning *ist_plan_notes(const ist_plan *plan);

/* Names a tensor for tests; a no-op unless options.taps. Never tap a tensor that a later op modifies in place. */
void ist_plan_tap(ist_plan *plan, const char *name, ist_tensor t);

typedef enum ist_arg_kind {
    IST_ARG_IN, IST_ARG_OUT, IST_ARG_INOUT, /* tensors: the buffer's pointer (not offset by c0; pass c0, ld as sizes) */
    IST_ARG_INT, IST_ARG_FLOAT, IST_ARG_INT4, IST_ARG_INT8, IST_ARG_FLOAT4, IST_ARG_STRUCT
} ist_arg_kind;

typedef struct ist_arg {
    ist_arg_kind kind;
    ist_tensor tensor;
    union {
        int i[8];
        float f[4];
        struct {
            const void *data; /* copied by ist_plan_launch */
            const char *type; /* its name in kernels; static */
            size_t bytes;
        } s;
    } v;
} ist_arg;

#define IST_IN(t)    {.kind = IST_ARG_IN, .tensor = (t)}
#define IST_OUT(t)   {.kind = IST_ARG_OUT, .tensor = (t)}
#define IST_INOUT(t) {.kind = IST_ARG_INOUT, .tensor = (t)}
#define IST_INT(x)   {.kind = IST_ARG_INT, .v.i = {(x)}}
#define IST_FLOAT(x) {.kind = IST_ARG_FLOAT, .v.f = {(x)}}
#define IST_INT4(...) {.kind = IST_ARG_INT4, .v.i = {__VA_ARGS__}}
#define IST_INT8(...) {.kind = IST_ARG_INT8, .v.i = {__VA_ARGS__}}
#define IST_FLOAT4(...) {.kind = IST_ARG_FLOAT4, .v.f = {__VA_ARGS__}}

/* A struct of a header *_args.h by value: IST_STRUCT(eltwise_args, &args), args an ist_eltwise_args. Its members are
 * ints, floats, and structs of these; a launch has at most one. */
#define IST_STRUCT(name, pointer)                                                                                      \
    {.kind = IST_ARG_STRUCT, .v.s = {(1 ? (pointer) : (const ist_##name *)0), #name, sizeof(ist_##name)}}

#define IST_MAX_ARGS 28

/* Which kernel variant records launches: static names of its kind of node, machine and own; NULL: nobody. */
typedef struct ist_origin {
    const char *node, *machine, *variant;
} ist_origin;

/* One kernel launch. An absent optional tensor argument ({0}) passes NULL: kernels must decide by their size arguments
 * whether to touch it. */
typedef struct ist_launch {
    const char *label;                      /* for errors and profiles: "conv 3x3 backbone.stem.stem3"; copied */
    const char *op, *isa, *defines, *kernel; /* program and entry; op "cpu/conv", isa "cpu/tile" or NULL; copied */
    ist_origin from;                        /* ist_plan_origin's, set by ist_plan_launch */
    int dims;
    size_t global[3], local[3];             /* global is a multiple of local in every dimension; both all > 0 */
    ist_arg args[IST_MAX_ARGS];
    int arg_count;
    double flops, bytes;                    /* of one replay, for profiles; 0 when not counted */
    bool shares; /* a CPU kernel of one work-item per group that does nothing but items of ist_plan_work_queue: what
                    follows each other of these becomes one launch (core/series.c) */
    const char *stage;                      /* ist_plan_stage's, set by ist_plan_launch; "" before the first */
    void *owned;                            /* the struct among its arguments, set by ist_plan_launch */
} ist_launch;

void ist_plan_launch(ist_plan *plan, const ist_launch *launch);

/* Launches from here on are this kernel variant's; returns whose they were. */
ist_origin ist_plan_origin(ist_plan *plan, ist_origin variant);

/* Operators that are being gathered into one launch (variants/sequence.h); while there are, nothing else can be
 * launched. */
struct ist_sequence;
void ist_plan_set_sequence(ist_plan *plan, struct ist_sequence *sequence);
struct ist_sequence *ist_plan_sequence(const ist_plan *plan);
/* Number of buffers so far; tensors made later have higher ones. */
int ist_plan_buffers(const ist_plan *plan);
/* The tensor is read after the frame (a tap). */
bool ist_plan_keeps(const ist_plan *plan, int buffer);

/* ---- finishing and running ---- */

typedef struct ist_plan_facts {
    int launches;
    size_t arena_bytes, arena_lower_bound, const_bytes;
} ist_plan_facts;

/* Places, uploads, builds and sets arguments. After success the plan can be replayed. */
ist_status ist_plan_finish(ist_plan *plan, ist_error *err);
ist_plan_facts ist_plan_describe(const ist_plan *plan);

/* Binds an external buffer; sets arguments of the kernels that use it only when it differs from what is bound. */
ist_status ist_plan_bind(ist_plan *plan, int ext, cl_mem buffer, ist_error *err);
/* Forgets that `buffer` is bound, wherever it is: to be called before it is released, since the next buffer may get the
 * same handle. */
void ist_plan_unbind(ist_plan *plan, cl_mem buffer);
/* For a plan with options.late, finished and bound: makes its kernels, last unit first, and launches one group of each
 * on zeroed buffers, so that a platform that compiles at the first launch has compiled them all. Nothing else can be
 * done with such a plan. */
ist_status ist_plan_compile(ist_plan *plan, ist_error *err);
/* Replays from here on leave out the sections whose bits are set; 0: none. */
void ist_plan_leave_out(ist_plan *plan, unsigned sections);
/* Enqueues the whole frame, which ends where the main lane does. A frame with branches flushes both lanes: `scope` is
 * what that belongs to, set-up for ist_plan_replay. */
ist_status ist_plan_replay_for(ist_plan *plan, ist_frame_scope scope, ist_error *err);
ist_status ist_plan_replay(ist_plan *plan, ist_error *err);

/* ---- tests and profiles (each call waits; recorded in the ledger as set-up) ---- */

/* Dense NHWC float <-> tensor (any view, elem T or F32); int variants for I32. */
ist_status ist_plan_write_f32(ist_plan *plan, ist_tensor t, const float *values, ist_error *err);
ist_status ist_plan_read_f32(ist_plan *plan, ist_tensor t, float *values, ist_error *err);
ist_status ist_plan_write_i32(ist_plan *plan, ist_tensor t, const int *values, ist_error *err);
ist_status ist_plan_read_i32(ist_plan *plan, ist_tensor t, int *values, ist_error *err);
/* The tensor tapped as `name`; empty when there is none. */
ist_tensor ist_plan_tapped(const ist_plan *plan, const char *name);
/* With guard_bytes: IST_E_STATE naming the first tensor whose surroundings were overwritten. */
ist_status ist_plan_check_guards(ist_plan *plan, ist_error *err);
/* Replays once and waits; ms[i], by the device's clock, for launch i of ist_plan_describe().launches. */
ist_status ist_plan_profile(ist_plan *plan, double *ms, ist_error *err);
const ist_launch *ist_plan_launch_at(const ist_plan *plan, int i);

#endif
