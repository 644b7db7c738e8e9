/* Jobs in shared memory: see jobs.h. States are atomic; whoever changes a job's from WAITING has it. Waiting is looking
 * again a millisecond later: what is waited for takes a hundred. */
#include "device/jobs.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256, TEXT = 1000, PATIENCE = 60000 /* milliseconds without any change */ };

enum {
    EMPTY,
    WAITING,
    DONE,
    TAKEN,
    TAKEN_BY
};                                /* states: taken by the owner of the list; plus its number, by a worker */
enum { EXPECTED, PRESENT, GONE }; /* a worker */

typedef struct job {
    atomic_int state, result;
    int probe;
    int isa, defines; /* where these begin in the text, behind op; isa is 0 when there is none */
    size_t cost;
    char text[TEXT];
} job;

struct ist_jobs {
    atomic_int device; /* 1 + its place in the list; 0: not known */
    atomic_int owner;  /* the process that runs frames; 0: not known yet */
    atomic_int workers, count, changes;
    atomic_bool closed, ended, good;
    struct {
        atomic_int presence;
        pthread_mutex_t alive; /* robust; the worker has it while it is there */
    } worker[IST_JOBS_WORKERS];
    job list[MOST];
};

size_t ist_jobs_bytes(void) {
    return sizeof(ist_jobs);
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void describe(const ist_jobs *jobs, int number, ist_job *out) {
    const job *j = &jobs->list[number];
    *out = (ist_job){.number = number,
                     .probe = j->probe,
                     .op = j->text,
                     .isa = j->isa ? j->text + j->isa : NULL,
                     .defines = j->text + j->defines};
}

/* The longest of those that wait. */
static bool take(ist_jobs *jobs, int taken, ist_job *out) {
    for (;;) {
        int count = atomic_load(&jobs->count), best = -1, waiting = WAITING;
        for (int i = 0; i < count; i++)
            if (atomic_load(&jobs->list[i].state) == WAITING &&
                (best < 0 || jobs->list[i].cost > jobs->list[best].cost))
                best = i;
        if (best < 0) return false;
        if (!atomic_compare_exchange_strong(&jobs->list[best].state, &waiting, taken)) continue;
        atomic_fetch_add(&jobs->changes, 1);
        describe(jobs, best, out);
        return true;
    }
}

/* ---- a worker ---- */

bool ist_jobs_enter(ist_jobs *jobs, int worker) {
    pthread_mutexattr_t shared;
    pthread_mutex_t *alive = &jobs->worker[worker].alive;
    if (pthread_mutexattr_init(&shared)) return false;
    bool made = !pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) &&
                !pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST) && !pthread_mutex_init(alive, &shared) &&
                !pthread_mutex_lock(alive);
    pthread_mutexattr_destroy(&shared);
    atomic_store(&jobs->worker[worker].presence, made ? PRESENT : GONE);
    return made;
}

void ist_jobs_leave(ist_jobs *jobs, int worker) {
    atomic_store(&jobs->worker[worker].presence, GONE);
    pthread_mutex_unlock(&jobs->worker[worker].alive);
}

/* The process that adds them, which forked this one, has ended. */
static bool is_orphan(const ist_jobs *jobs) {
    pid_t owner = (pid_t)atomic_load(&jobs->owner);
    return owner && owner != getpid() && owner != getppid();
}

static bool is_over(const ist_jobs *jobs) {
    return atomic_load(&jobs->closed) || is_orphan(jobs);
}

int ist_jobs_device(const ist_jobs *jobs) {
    for (;; nap()) {
        bool over = is_over(jobs); /* before the look at the rest, which may be the last */
        int device = atomic_load(&jobs->device);
        if (device || over) return device - 1;
    }
}

bool ist_jobs_next(ist_jobs *jobs, int worker, ist_job *out) {
    for (;; nap()) {
        bool over = is_over(jobs); /* before the look at the rest, which may be the last */
        if (take(jobs, TAKEN_BY + worker, out)) return true;
        if (over) return false;
    }
}

void ist_jobs_done(ist_jobs *jobs, int number, int result) {
    atomic_store(&jobs->list[number].result, result);
    atomic_store(&jobs->list[number].state, DONE);
    atomic_fetch_add(&jobs->changes, 1);
}

bool ist_jobs_good(const ist_jobs *jobs) {
    while (!atomic_load(&jobs->ended) && !is_orphan(jobs)) nap();
    return atomic_load(&jobs->ended) && atomic_load(&jobs->good);
}

/* ---- the process that runs frames ---- */

void ist_jobs_begin(ist_jobs *jobs, int workers) {
    atomic_store(&jobs->owner, (int)getpid());
    atomic_store(&jobs->workers, workers < IST_JOBS_WORKERS ? workers : IST_JOBS_WORKERS);
}

bool ist_jobs_are_for(ist_jobs *jobs, int device) {
    int none = 0;
    atomic_compare_exchange_strong(&jobs->device, &none, device + 1);
    return atomic_load(&jobs->device) == device + 1;
}

static bool is_same(const ist_jobs *jobs, int number, const ist_job *other) {
    ist_job own;
    describe(jobs, number, &own);
    if (own.probe >= 0 || other->probe >= 0) return own.probe == other->probe;
    return !strcmp(own.op, other->op) && !strcmp(own.defines, other->defines) && !own.isa == !other->isa &&
           (!own.isa || !strcmp(own.isa, other->isa));
}

/* op, isa and defines, each with its end; false when there is no room. */
static bool write_text(job *j, const ist_job *from) {
    const char *op = from->probe < 0 ? from->op : "", *isa = from->probe < 0 && from->isa ? from->isa : "";
    const char *defines = from->probe < 0 ? from->defines : "";
    size_t first = strlen(op) + 1, second = first + strlen(isa) + 1;
    if (second + strlen(defines) + 1 > TEXT) return false;
    memcpy(j->text, op, first);
    memcpy(j->text + first, isa, second - first);
    memcpy(j->text + second, defines, strlen(defines) + 1);
    j->isa = *isa ? (int)first : 0;
    j->defines = (int)second;
    return true;
}

int ist_jobs_add(ist_jobs *jobs, const ist_job *from, size_t cost) {
    int count = atomic_load(&jobs->count);
    for (int i = 0; i < count; i++)
        if (is_same(jobs, i, from)) return i;
    if (count == MOST || !write_text(&jobs->list[count], from)) return -1;
    jobs->list[count].probe = from->probe;
    jobs->list[count].cost = cost;
    atomic_store(&jobs->list[count].state, WAITING);
    atomic_store(&jobs->count, count + 1);
    return count;
}

bool ist_jobs_take(ist_jobs *jobs, ist_job *out) {
    return take(jobs, TAKEN, out);
}

/* A process that has ended, however, has let go of its mutex. */
static bool is_alive(ist_jobs *jobs, int worker) {
    int presence = atomic_load(&jobs->worker[worker].presence);
    if (presence != PRESENT) return presence == EXPECTED;
    pthread_mutex_t *alive = &jobs->worker[worker].alive;
    int code = pthread_mutex_trylock(alive);
    if (code == EBUSY) return true;
    if (code == EOWNERDEAD) code = pthread_mutex_consistent(alive);
    if (!code) pthread_mutex_unlock(alive);
    atomic_store(&jobs->worker[worker].presence, GONE);
    return false;
}

static bool any_alive(ist_jobs *jobs) {
    int workers = atomic_load(&jobs->workers);
    for (int i = 0; i < workers; i++)
        if (is_alive(jobs, i)) return true;
    return false;
}

/* Whether somebody is at work on one, or may be. */
static bool in_hands(ist_jobs *jobs) {
    int count = atomic_load(&jobs->count);
    for (int i = 0; i < count; i++) {
        int state = atomic_load(&jobs->list[i].state);
        if (state == WAITING && any_alive(jobs)) return true;
        if (state >= TAKEN_BY && is_alive(jobs, state - TAKEN_BY)) return true;
    }
    return false;
}

void ist_jobs_settle(ist_jobs *jobs) {
    int changes = -1;
    double since = ist_clock_ms();
    for (; in_hands(jobs); nap()) {
        int now = atomic_load(&jobs->changes);
        if (now == changes && ist_clock_ms() - since > PATIENCE) return;
        if (now != changes) since = ist_clock_ms();
        changes = now;
    }
}

bool ist_jobs_is_done(const ist_jobs *jobs, int number, int *result) {
    if (atomic_load(&jobs->list[number].state) != DONE) return false;
    *result = atomic_load(&jobs->list[number].result);
    return true;
}

void ist_jobs_close(ist_jobs *jobs) {
    atomic_store(&jobs->closed, true);
}

void ist_jobs_end(ist_jobs *jobs, bool good) {
    ist_jobs_close(jobs);
    if (atomic_load(&jobs->ended)) return;
    atomic_store(&jobs->good, good);
    atomic_store(&jobs->ended, true);
}
