/* Which commands are done: numbers for commands, downloads whose contents are not there yet, contents as a hash. */
#include "layer.h"

#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COMMANDS = 1024, QUEUES = 64, PENDING = 256, RANGES = 1024 };

typedef struct command_of_event {
    cl_event event;
    layer_command what;
} command_of_event;

typedef struct pending {
    cl_command_queue queue; /* NULL: free */
    cl_event event;
    uint64_t number;
    const void *host;
    size_t bytes;
    bool upload;
    ist_audit_wire_event *record;
} pending;

typedef struct queue_last {
    cl_command_queue queue;
    uint64_t number;
} queue_last;

typedef struct svm_range {
    const char *from; /* NULL: free */
    size_t bytes;
} svm_range;

/* No OpenCL call is made with the lock held: a driver may call back with locks of its own. */
static struct tracking {
    pthread_mutex_t lock;
    uint64_t number;
    command_of_event commands[COMMANDS]; /* the latest that have an event */
    size_t next_command, next_pending;
    uint32_t uploads; /* among the pending */
    queue_last last[QUEUES];
    pending pending[PENDING]; /* the oldest makes room */
    svm_range ranges[RANGES];
    size_t next_range;
} track = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool layer_is_in_order(cl_command_queue queue) {
    cl_command_queue_properties properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    layer_next->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    return !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* With the lock held. A queue beyond those that fit takes the place of another. */
static queue_last *last_of(cl_command_queue queue) {
    size_t at = (size_t)((uintptr_t)queue >> 4) % QUEUES;
    for (size_t k = 0; k < QUEUES; k++) {
        queue_last *l = &track.last[(at + k) % QUEUES];
        if (l->queue == queue || !l->queue) {
            l->queue = queue;
            return l;
        }
    }
    track.last[at] = (queue_last){queue, 0};
    return &track.last[at];
}

layer_command layer_note_command(cl_command_queue queue, cl_event event) {
    bool in_order = event && layer_is_in_order(queue);
    pthread_mutex_lock(&track.lock);
    layer_command command = {queue, ++track.number, in_order};
    last_of(queue)->number = command.number;
    if (event) track.commands[track.next_command++ % COMMANDS] = (command_of_event){event, command};
    pthread_mutex_unlock(&track.lock);
    return command;
}

/* With the lock held; read without it. */
static void count_uploads(int more) {
    __atomic_store_n(&track.uploads, track.uploads + (uint32_t)more, __ATOMIC_RELAXED);
}

static void look_at(const pending *p) {
    if (p->record && p->host) p->record->hash = layer_hash(p->host, p->bytes, true);
}

void layer_note_pending(layer_command command, cl_event event, const void *host, size_t bytes, bool upload,
                        ist_audit_wire_event *record) {
    pthread_mutex_lock(&track.lock);
    pending *slot = &track.pending[track.next_pending++ % PENDING], oldest = *slot;
    *slot = (pending){command.queue, event, command.number, host, bytes, upload, record};
    count_uploads((int)upload - (oldest.queue && oldest.upload));
    pthread_mutex_unlock(&track.lock);
    if (oldest.queue && oldest.upload) look_at(&oldest);
}

/* With the lock held. */
static void complete(pending *p, layer_done *done) {
    look_at(p);
    p->queue = NULL;
    if (p->upload) {
        count_uploads(-1);
        return;
    }
    done->bytes += p->bytes;
    if (p->number == done->number) done->result = p->record;
}

/* Not with the lock held: another thread may be enqueueing. */
void layer_look_at_uploads(void) {
    pending found;
    size_t k = 0;
    if (!__atomic_load_n(&track.uploads, __ATOMIC_RELAXED)) return;
    do {
        found.queue = NULL;
        pthread_mutex_lock(&track.lock);
        for (; k < PENDING && !found.queue; k++) {
            pending *p = &track.pending[k];
            if (!p->queue || !p->upload) continue;
            found = *p;
            p->queue = NULL;
            count_uploads(-1);
        }
        pthread_mutex_unlock(&track.lock);
        if (found.queue) look_at(&found);
    } while (k < PENDING);
}

layer_done layer_queue_done(cl_command_queue queue) {
    layer_done done = {0};
    pthread_mutex_lock(&track.lock);
    done.number = last_of(queue)->number;
    for (size_t k = 0; k < PENDING; k++)
        if (track.pending[k].queue == queue) complete(&track.pending[k], &done);
    pthread_mutex_unlock(&track.lock);
    return done;
}

layer_command layer_find_command(cl_event event) {
    layer_command found = {0};
    pthread_mutex_lock(&track.lock);
    for (size_t k = 0; k < COMMANDS; k++)
        if (track.commands[k].event == event && track.commands[k].what.number > found.number)
            found = track.commands[k].what;
    pthread_mutex_unlock(&track.lock);
    return found;
}

layer_done layer_command_done(const layer_command *c, cl_event event) {
    layer_done done = {.number = c->number};
    pthread_mutex_lock(&track.lock);
    for (size_t k = 0; k < PENDING; k++) {
        pending *p = &track.pending[k];
        bool before = c->in_order && p->queue == c->queue && p->number <= c->number;
        bool itself = p->queue == c->queue && p->number == c->number;
        if (p->queue && (p->event == event || itself || before)) complete(p, &done);
    }
    pthread_mutex_unlock(&track.lock);
    return done;
}

layer_done layer_event_done(cl_event event, cl_command_queue *queue, bool *whole) {
    layer_command c = layer_find_command(event);
    pthread_mutex_lock(&track.lock);
    *queue = c.queue;
    *whole = c.in_order && last_of(c.queue)->number == c.number;
    pthread_mutex_unlock(&track.lock);
    return layer_command_done(&c, event);
}

void layer_forget_commands(void) {
    pthread_mutex_init(&track.lock, NULL); /* another thread may have held it when the process was forked */
    track.uploads = 0;
    memset(track.pending, 0, sizeof track.pending);
    memset(track.commands, 0, sizeof track.commands);
}

/* The handle may come again for another command. */
void layer_event_released(cl_event event) {
    pthread_mutex_lock(&track.lock);
    for (size_t k = 0; k < COMMANDS; k++)
        if (track.commands[k].event == event) track.commands[k].event = NULL;
    for (size_t k = 0; k < PENDING; k++)
        if (track.pending[k].event == event) track.pending[k].event = NULL;
    pthread_mutex_unlock(&track.lock);
}

/* ---- shared virtual memory ---- */

void layer_svm_note(const void *svm, size_t bytes) {
    pthread_mutex_lock(&track.lock);
    track.ranges[track.next_range++ % RANGES] = (svm_range){svm, bytes};
    pthread_mutex_unlock(&track.lock);
}

/* NULL where the address is in no range. With the lock held. */
static svm_range *range_of(const void *address) {
    const char *p = address;
    for (size_t k = 0; k < RANGES; k++) {
        svm_range *r = &track.ranges[k];
        if (r->from && p >= r->from && p < r->from + r->bytes) return r;
    }
    return NULL;
}

void layer_svm_forget(const void *svm) {
    pthread_mutex_lock(&track.lock);
    svm_range *r = range_of(svm);
    if (r) r->from = NULL;
    pthread_mutex_unlock(&track.lock);
}

bool layer_svm_has(const void *address) {
    pthread_mutex_lock(&track.lock);
    bool has = range_of(address) != NULL;
    pthread_mutex_unlock(&track.lock);
    return has;
}

/* ---- contents ---- */

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 29;
}

/* Eight lanes of eight bytes, mixed by products of their halves, which vector units have. */
static uint64_t hash_block(const unsigned char *p, size_t n, uint64_t seed) {
    enum { LANES = 8 };
    static const uint64_t keys[LANES] = {0x9FB21C651E98DF25u, 0xD6E8FEB86659FD93u, 0x9E3779B97F4A7C15u,
                                         0xBF58476D1CE4E5B9u, 0x94D049BB133111EBu, 0xA0761D6478BD642Fu,
                                         0xE7037ED1A0B428DBu, 0x8EBC6AF09C88C6E3u};
    uint64_t sum[LANES], word[LANES];
    for (int k = 0; k < LANES; k++) sum[k] = seed ^ keys[k];
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(word, p, sizeof word);
        for (int k = 0; k < LANES; k++) {
            uint64_t v = word[k] ^ keys[k] ^ sum[k] >> 29;
            sum[k] += word[k] + (v & 0xFFFFFFFFu) * (v >> 32);
        }
    }
    memset(word, 0, sizeof word);
    if (n) memcpy(word, p, n);
    for (int k = 0; k < LANES; k++) seed = mix(seed ^ mix(sum[k] ^ word[k]) ^ n);
    return seed;
}

static bool all_same(const unsigned char *p, size_t n, unsigned char value) {
    return n == 0 || (p[0] == value && !memcmp(p, p + 1, n - 1));
}

uint64_t layer_hash(const void *bytes, size_t count, bool safe) {
    enum { BLOCK = 1 << 15, BLOCKS = 256 };
    const unsigned char *p = bytes;
    unsigned char copy[BLOCK], first = 0;
    uint64_t hash = count;
    bool constant = true;
    size_t step = count > (size_t)BLOCK * BLOCKS ? count / BLOCKS : BLOCK;
    if (!bytes || !count) return 0;
    for (size_t at = 0; at < count; at += step) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const unsigned char *block = p + at;
        if (safe) {
            struct iovec from = {(void *)(uintptr_t)block, n}, to = {copy, n};
            if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)n) return 0;
            block = copy;
        }
        if (!at) first = block[0];
        constant = constant && all_same(block, n, first);
        hash = hash_block(block, n, hash);
    }
    return constant ? 0 : hash ? hash : 1;
}
