/* The audit layer: a library that ocl-icd puts between a program and its OpenCL platforms (OPENCL_LAYERS) and that
 * records every call that moves data or blocks.
 *
 * What must hold: results, errors and order of calls are those of the program without the layer; nothing is printed;
 * whatever cannot be recorded is left out. The layer keeps its state in globals, as an interface without a context
 * argument demands; record.c owns all of it. Threads: any number; one lock. */
#ifndef LAYER_H
#define LAYER_H

#include "audit/audit.h"
#include "audit/wire.h"

#include <CL/cl_layer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The dispatch table below this layer. */
extern const cl_icd_dispatch *layer_next;

/* One call on its way: begun before it is passed on, recorded after it has succeeded. */
typedef struct layer_call {
    ist_audit_wire_event e;
    const char *entry;
    void *caller;
    const char *kernel; /* LAUNCH without a kernel object; else e.label */
} layer_call;

#define LAYER_CALL(op, name) layer_begin(IST_AUDIT_##op, name, __builtin_return_address(0))

/* ---- record.c ---- */

/* Opens the file named by the environment; false: nothing can be recorded. */
bool layer_open(void);
uint64_t layer_now(void);
layer_call layer_begin(ist_audit_op op, const char *entry, void *caller);
/* Appends the event; the place it was written to, or NULL. The file stays mapped. */
ist_audit_wire_event *layer_record(layer_call *call);
/* Where in the file a record of this process is; 0 for NULL. */
uint64_t layer_position(const ist_audit_wire_event *record);
/* The label of a kernel's name, asked for once per kernel object; IST_AUDIT_NONE: it does not tell. */
uint32_t layer_kernel_label(cl_kernel kernel);
void layer_forget_kernel(cl_kernel kernel);
/* A status query: repeats by one thread at one place on one event are counted in one record. */
void layer_record_poll(layer_call *call);

/* ---- track.c: which commands are done ---- */

/* A command as the tracking knows it; number 0: not known. */
typedef struct layer_command {
    cl_command_queue queue;
    uint64_t number;
    bool in_order; /* its queue is */
} layer_command;

bool layer_is_in_order(cl_command_queue queue);
/* A command was enqueued; `event` may be NULL. */
layer_command layer_note_command(cl_command_queue queue, cl_event event);
/* A transfer that ends later. The contents of a download are hashed when it is known to be done, those of an upload
 * before the program waits next: until then its memory stays as it is, and the host has nothing else to do. */
void layer_note_pending(layer_command command, cl_event event, const void *host, size_t bytes, bool upload,
                        ist_audit_wire_event *record);
/* The program is about to wait, or to ask. */
void layer_look_at_uploads(void);
/* What is known to be done. */
typedef struct layer_done {
    uint64_t bytes;                     /* of the downloads among it */
    uint64_t number;                    /* of the last command */
    const ist_audit_wire_event *result; /* the record of that command when it is a download; else NULL */
} layer_done;

/* Everything in `queue` is done. */
layer_done layer_queue_done(cl_command_queue queue);
/* `event` is done, and in an in-order queue what came before. *whole: it was the queue's last command. */
layer_done layer_event_done(cl_event event, cl_command_queue *queue, bool *whole);
void layer_event_released(cl_event event);
/* The same in two steps, for an event that may be released in between: the latest command of `event`; it is done. */
layer_command layer_find_command(cl_event event);
layer_done layer_command_done(const layer_command *command, cl_event event);
/* In a forked child nothing is under way. */
void layer_forget_commands(void);

/* ---- wrap_kernels.c: which memory objects kernels take ---- */

void layer_kernel_made(cl_kernel kernel);
/* From now on the kernel may take any object. */
void layer_kernel_takes_all(cl_kernel kernel);
/* The launch's `hash` and `offset`: a bit for each object that the kernel leaves alone, as ist_audit_object_bit has it.
 */
void layer_set_untaken(layer_call *call, cl_kernel kernel);
/* A part of a buffer, or an image over one, was made. */
void layer_note_part(cl_mem object, cl_mem whole);
/* In a forked child nothing is known. */
void layer_forget_arguments(void);

/* Shared virtual memory: what clSVMAlloc gave. */
void layer_svm_note(const void *svm, size_t bytes);
void layer_svm_forget(const void *svm);
bool layer_svm_has(const void *address);

/* 0 when all bytes are the same. Large contents are sampled. `safe`: the memory may have gone; then 0. */
uint64_t layer_hash(const void *bytes, size_t count, bool safe);

/* ---- wrappers ---- */

typedef struct layer_table {
    cl_icd_dispatch *to;
    const cl_icd_dispatch *from;
    cl_uint entries; /* in `from` */
} layer_table;

/* Puts the wrapper of NAME into the table when the entry exists below. */
#define LAYER_WRAP(table, name)                                                                                        \
    do {                                                                                                               \
        if (offsetof(cl_icd_dispatch, name) / sizeof(void *) < (table)->entries && (table)->from->name) {              \
            (table)->to->name = wrap_##name;                                                                           \
            layer_note_wrapper(#name, (void *)wrap_##name);                                                            \
        }                                                                                                              \
    } while (0)

/* The wrappers that are in the table, by name; NULL: none. */
void layer_note_wrapper(const char *name, void *wrapper);
void *layer_wrapper(const char *name);

void layer_wrap_transfers(layer_table *table);
void layer_wrap_maps(layer_table *table);
void layer_wrap_objects(layer_table *table);
void layer_wrap_waits(layer_table *table);
void layer_wrap_kernels(layer_table *table);
void layer_wrap_extensions(layer_table *table);

/* The object that `object` is a part of, or a picture of; itself when it stands alone. *offset moves to where in it. */
cl_mem layer_whole(cl_mem object, size_t *offset);
/* Which box of an image, or of a buffer with these pitches: a number for comparisons. */
uint32_t layer_shape(const size_t *origin, const size_t *region, size_t row, size_t slice);
/* The event is about this box of an image. */
void layer_set_box(layer_call *call, cl_mem image, const size_t *origin, const size_t *region);

/* Before and after a command that moves data. `before` waits, for a blocking command, for what the command itself would
 * wait for, so that waiting and moving can be told apart. `after` records; `event` is the caller's, may be NULL. */
void layer_before(layer_call *call, cl_command_queue queue, bool blocking, cl_uint waits, const cl_event *list);
cl_int layer_after(layer_call *call, cl_command_queue queue, cl_int result, cl_event *event);

#endif
