/* The engine: one recorded frame, a ring of slots for batches in flight, and the rules of submit, receive and release.
 *
 * A slot owns everything one batch needs between submit and release: pinned staging and device buffer of the upload,
 * device buffer and pinned copy of the packet, the mask store, and the results handed out. The arena is shared: the
 * queue is in order and a batch's part on the second queue, if there is one, lies between two points of the first, so
 * the kernels of one batch end before those of the next begin. Buffers grow when an image needs
 * more than any before; nothing is allocated otherwise. Mapping pinned memory takes its turn in the queue, so growing
 * waits for the batches in flight: therefore each slot starts with room for images of 1080p.
 *
 * ist_stage lends the staging of a free slot to the submitting thread, whose next batch goes there (staging.h).
 *
 * Threads: submit on one thread, receive and release on another; helpers of the copier are seen by submit alone. `lock`
 * guards slot states and the order of the queue; the contents of a slot belong to whoever took it out of its state. */
#ifndef IST_PIPELINE_ENGINE_H
#define IST_PIPELINE_ENGINE_H

#include "core/plan.h"
#include "graph/frame.h"
#include "graph/trust.h"
#include "pipeline/copier.h"
#include "pipeline/crops.h"
#include "pipeline/tiles.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* External buffers of the frame's plan. */
enum { IST_EXT_UPLOAD, IST_EXT_PIXELS, IST_EXT_PACKET, IST_EXT_STORE, IST_EXT_EMBEDDING, IST_EXT_FOUND, IST_EXT_REGIONS };

enum { IST_MAX_BATCH = 64, IST_MAX_SLOTS = 8, IST_MAX_OBJECTS = 300, IST_MAX_POINTS = 256, IST_MAX_EMBEDDINGS = 1024 };

/* Places of a prompt: its points, and the padding or the corners of its box. */
static inline int ist_prompt_points(const ist_config *config) {
    return config->max_points + 2;
}

/* Prompts with up to so many places, a click or two, a box and a point, are decoded by themselves with as many: some
 * machines have faster kernels for few tokens, and none waits for places that are empty. Which of the two ways a prompt
 * goes is its own affair, not its batch's, and a batch without prompts of one way leaves its section out. */
enum { IST_FEW_PLACES = 3 };
enum { IST_SECTION_FEW = 1, IST_SECTION_MANY };

/* Mask words the packet brings per image in its one read: what the image's masks can need at most, up to 4 MiB (16
 * masks of 1080p). More is fetched by a second read. */
enum { IST_PACKET_MASK_WORDS = 1 << 20 };

/* A cancelled batch keeps its slot until the device has ended it: memory of the host that a write still reads. */
typedef enum ist_slot_state {
    IST_SLOT_FREE,
    IST_SLOT_FILLING,
    IST_SLOT_FLYING,
    IST_SLOT_OUT,
    IST_SLOT_CANCELLED
} ist_slot_state;

/* What the tap tables in a slot's staging were computed for, and their words: the detector's two and the segmenter's.
 */
typedef struct ist_slot_geometry {
    int width, height;
    size_t words[4];
} ist_slot_geometry;

/* What judges tracks (trust.h). */
typedef struct ist_trust_stage ist_trust_stage;

typedef struct ist_slot {
    ist_slot_state state;
    uint64_t sequence;           /* order of submission, from 1 */
    ist_pinned staging, landing; /* host sides of upload and packet */
    cl_mem upload, packet, store;
    size_t upload_bytes, store_words, packet_bytes; /* capacities; store_words is per object */
    size_t mask_words;                              /* room for masks in this batch's packet */
    size_t logit_words;                             /* low-resolution logits in it */
    size_t weight_words;                            /* weights of tracks behind what is read */
    ist_trust trust[IST_TRUST_TRACKS];
    cl_event read_done;                             /* or, without a read, the last kernel */
    ist_transfers counts;
    double submit_start, submit_ms;
    double device_start;         /* when the first command of the batch was enqueued */
    int count;                   /* images in flight */
    ist_slot_geometry *geometry; /* [batch] */
    int geometry_count;
    bool automatic[IST_MAX_BATCH]; /* images whose window the device finds */
    ist_crops_layout *crops;  /* of everything: of the image in flight */
    ist_tile_layout tiles;    /* of tiles: likewise */
    uint32_t *overflow;       /* host copy of masks that did not fit the packet */
    size_t overflow_capacity; /* words */
    ist_result result;
    ist_frame *frames;   /* [batch] */
    ist_object *objects; /* [batch * objects of the engine] */
} ist_slot;

/* An image's embedding, kept for prompts to come. */
struct ist_embedding {
    ist_embedding *next;
    cl_mem buffer;
    int width, height; /* of the image */
    ist_transfers counts;
};

struct ist_engine {
    ist_config config; /* numbers only: pointers of the caller are not kept */
    ist_device *device;
    ist_plan *plan;         /* NULL: no detector, ist_assign only */
    ist_plan *encoder;      /* with given prompts: from upload to embedding; `plan` is then from there to the packet */
    ist_plan *selection;    /* of everything: `plan` is a batch of points, this is which masks are kept, */
    ist_plan *cleaning;     /* removes small regions from these, where that is asked for, */
    ist_plan *packing;      /* and this makes the packet */
    ist_plan *windows;      /* of tiles: the image's automatic window, or NULL; */
    ist_plan *detection;    /* this looks at a group of tiles, */
    ist_plan *merging;      /* this brings together what was found in all, `plan` makes the packet */
    ist_tiles tiles;
    ist_everything everything;
    ist_grids grids;
    cl_mem found;           /* graph/found.h, of tiles graph/tiled.h */
    cl_mem regions;         /* GRID_CLEAN's */
    size_t regions_bytes;
    cl_mem embedding;       /* of the batch that is submitted with images, or of all crops */
    size_t embedding_bytes; /* of an image */
    int tile_embeddings;    /* of tiles: how many `embedding` has room for */
    ist_slot encoding;      /* upload of what ist_encode is given; nothing else of it is used */
    ist_embedding *embeddings;
    int embedding_count;
    int objects;        /* of an image at most: max_objects, and three times that with multimask */
    struct ist_reading *reading; /* until the plans hold the constants; of one that is only recorded, to the end */
    ist_copier *copier; /* of pixels; NULL on CPUs, whose kernels had better find them in the caches */
    ist_trust_stage *trust; /* NULL: nothing is judged */
    bool has_masks;
    int classes;
    char **class_names; /* [classes], or NULL */
    char detector[32], segmenter[32];
    pid_t process;                     /* that opened it: threads and device do not follow a fork */
    atomic_bool submitting, receiving; /* a thread is inside: src/api.c turns a second one away */
    pthread_mutex_t lock;
    ist_slot slots[IST_MAX_SLOTS];
    uint64_t sequence;
    bool reset_tracks; /* with the next submit */
    ist_slot *staged;  /* a free one that the next batch goes to, its pixels perhaps there; the submitting thread's own */
    bool track_half;   /* which half of the track state is current: IST_UP_TRACK_HALF; the submitting thread's own */
    ist_error lost;    /* the device failed: every later call reports this */
    double busy_ms, busy_until; /* how long the device had batches, to the last received; the receiving thread's own */
};

/* The engine's plans, in the order in which they are replayed first; how many there are. */
enum { IST_PLANS_MAX = 8 };
int ist_engine_plans(const ist_engine *engine, ist_plan *plans[IST_PLANS_MAX]);
/* Embeddings that lie beside each other in `embedding`: those of a batch, or of crops. */
int ist_engine_embeddings(const ist_engine *engine);

/* All arguments have been checked by src/api.c. `jobs`: of the workers that compile for it (ahead.h), or NULL. */
ist_status ist_engine_open(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err);
/* FRAMES: by the device's tuning record if there is one. KEPT: keeping the tensors that models name (inspect.h). LATE:
 * with a plan for ist_plan_compile only, and with none where a CPU's kernels are not those of CPUs (in a process that
 * others do without, ahead.h). RECORDED: with a plan that is only looked at, and without slots (choice.h). APART: every
 * launch by itself (profile.h). UNTUNED: without a record, noting the problems that could be tuned; TUNED: by the record
 * given (tune.h). */
typedef enum ist_open_mode {
    IST_OPEN_FRAMES,
    IST_OPEN_KEPT,
    IST_OPEN_LATE,
    IST_OPEN_RECORDED,
    IST_OPEN_APART,
    IST_OPEN_UNTUNED,
    IST_OPEN_TUNED
} ist_open_mode;
/* `tuning` is TUNED's, else NULL. */
ist_status ist_engine_open_as(const ist_config *config, ist_open_mode mode, const ist_tuning *tuning,
                              ist_engine **engine, ist_error *err);
/* Records the frame of a RECORDED engine of this configuration anew, into engine->plan, by the device's tuning record
 * or without one and with the capabilities of `flip` taken for the opposite of what they are: to be looked at
 * (choice.h). On failure the engine can only be closed or asked again. */
ist_status ist_engine_record_if(ist_engine *engine, const ist_config *config, unsigned flip, bool tuned,
                                ist_error *err);
void ist_engine_close(ist_engine **engine);
ist_status ist_engine_submit(ist_engine *engine, const ist_image *images, int count, ist_error *err);
ist_status ist_engine_stage(ist_engine *engine, const ist_image *images, int count, void **pixels, ist_error *err);
ist_status ist_engine_receive(ist_engine *engine, const ist_result **result, ist_error *err);
ist_status ist_engine_receive_for(ist_engine *engine, double timeout_ms, const ist_result **result, ist_error *err);
ist_status ist_engine_cancel(ist_engine *engine, int *cancelled, ist_error *err);
ist_status ist_engine_submitted(ist_engine *engine, ist_device_packet *device, ist_error *err);
void ist_engine_release(ist_engine *engine, const ist_result *result);
ist_status ist_engine_submit_prompts(ist_engine *engine, const ist_embedding *embedding, const ist_prompt *prompts,
                                     int count, uint64_t tag, ist_error *err);
ist_status ist_engine_encode(ist_engine *engine, const ist_image *image, ist_embedding **embedding, ist_error *err);
void ist_engine_forget(ist_engine *engine, ist_embedding *embedding);
/* IST_E_STATE when a batch is submitted and not yet received; the loss of the device where it was lost. */
ist_status ist_engine_idle(ist_engine *engine, ist_error *err);

/* The oldest batch in flight, or NULL; with the lock held. Its state stays FLYING until it has been received. */
ist_slot *ist_engine_oldest(ist_engine *engine);

/* ---- slot.c ---- */

ist_status ist_slot_create(ist_engine *engine, ist_slot *slot, ist_error *err);
void ist_slot_destroy(ist_engine *engine, ist_slot *slot);
/* Bytes of a packet with room for slot->mask_words, that are read. */
size_t ist_slot_packet_bytes(const ist_engine *engine, const ist_slot *slot);
/* Room for an upload of `bytes`, `store_words` per object and a packet of slot->mask_words; on failure the slot keeps
 * what it had or less. */
ist_status ist_slot_reserve(ist_engine *engine, ist_slot *slot, size_t bytes, size_t store_words, ist_error *err);
/* Where the slot's batch lies on the device; without its event. */
ist_device_packet ist_slot_on_device(const ist_engine *engine, const ist_slot *slot);
/* Turns the packet that has landed into slot->result; fetches masks that did not fit it. */
ist_status ist_slot_unpack(ist_engine *engine, ist_slot *slot, ist_error *err);

/* ---- within.c ---- */

/* Replays a plan by the upload that `words` words of the slot's are from word `at` on; without words by the slot's own.
 * The encoder's embedding goes to the engine's number `place`. */
ist_status ist_replay_within(ist_engine *engine, ist_plan *plan, const ist_slot *slot, size_t at, size_t words, int place,
                             ist_frame_scope scope, ist_error *err);

/* ---- tiled.c ---- */

/* Room for the embeddings of so many tiles. */
ist_status ist_tiles_reserve(ist_engine *engine, int tiles, ist_error *err);
/* From an upload that is there to the packet: the detector on all tiles, what stays of all, the encoder on tiles that have
 * something, the masks. */
ist_status ist_tiles_enqueue(ist_engine *engine, ist_slot *slot, cl_mem pixels, ist_frame_scope scope, ist_error *err);

/* ---- everything.c ---- */

/* Masks of the image that there is memory to clean at a time: 256 MiB; one of a megapixel needs 4. */
int ist_everything_cleaners(const ist_image *image);
/* Room for that. */
ist_status ist_everything_reserve(ist_engine *engine, const ist_image *image, ist_error *err);
/* From an upload that is there to the packet. */
ist_status ist_everything_enqueue(ist_engine *engine, ist_slot *slot, cl_mem pixels, ist_frame_scope scope,
                                  ist_error *err);

/* Replaces AUTO by what it becomes on a device; fails for a precision that the device does not have. */
ist_status ist_precision_choose(const ist_device *device, ist_precision *precision, ist_error *err);

#endif
