/* The one way an engine may be shared: submit on one thread, receive and release on another; and engines side by side.
 */
#include "support/engines.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAMES = 300, PICTURES = 3, IN_FLIGHT = 3 };

/* Enough of them for threads to meet. */
static int frames(int many) {
    return engines_lack_cpu() ? many / 10 : many;
}

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = 4;
    c.frames_in_flight = IN_FLIGHT;
    return c;
}

typedef struct relay {
    ist_engine *engine;
    const ist_result **want; /* of each picture */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int submitted, released;
    ist_error failure; /* of the receiving thread */
} relay;

/* False when the receiving thread has failed. */
static bool wait_until(relay *r, bool (*ready)(const relay *r)) {
    pthread_mutex_lock(&r->lock);
    while (!ready(r) && !r->failure.code) pthread_cond_wait(&r->changed, &r->lock);
    bool fine = !r->failure.code;
    pthread_mutex_unlock(&r->lock);
    return fine;
}

static void count_up(relay *r, int *counter, const ist_error *failure) {
    pthread_mutex_lock(&r->lock);
    ++*counter;
    if (failure) r->failure = *failure;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static bool something_flies(const relay *r) {
    return r->submitted > r->released;
}

static bool room_to_fly(const relay *r) {
    return r->submitted - r->released < IN_FLIGHT;
}

/* "" when the result is that of picture i % PICTURES, submitted as number i. Criterion's assertions stay on the main
 * thread. */
static ist_error compare(const relay *r, const ist_result *got, int i) {
    ist_error e = {0};
    const ist_frame *f = &got->frames[0], *w = &r->want[i % PICTURES]->frames[0];
    if (f->tag != (uint64_t)i || f->width != w->width || f->object_count != w->object_count ||
        got->transfers.writes != 1 || got->transfers.reads != 1 || got->transfers.waits != 1)
        e.code = IST_E_STATE;
    for (int k = 0; k < w->object_count && !e.code; k++)
        if (f->objects[k].score != w->objects[k].score || f->objects[k].query != w->objects[k].query)
            e.code = IST_E_STATE;
    if (e.code)
        snprintf(e.text, sizeof e.text, "frame %d came as %d x %d with tag %d", i, f->width, f->height, (int)f->tag);
    return e;
}

static void *receive_all(void *argument) {
    relay *r = argument;
    for (int i = 0; i < frames(FRAMES); i++) {
        const ist_result *got = NULL;
        ist_error e = {0};
        if (!wait_until(r, something_flies)) break;
        if (!ist_receive(r->engine, &got, &e)) e = compare(r, got, i);
        ist_release(r->engine, &got);
        count_up(r, &r->released, &e);
        if (e.code) break;
    }
    return NULL;
}

Test(api_threads, submit_here_receive_there, .timeout = 600) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    static const int sizes[PICTURES][2] = {{64, 48}, {90, 30}, {33, 77}};
    ist_image pictures[PICTURES];
    const ist_result *want[PICTURES];
    ist_engine *reference = engines_open(&c); /* its slots hold one result of each picture */
    for (int i = 0; i < PICTURES; i++) {
        pictures[i] = engines_image(sizes[i][0], sizes[i][1], (uint64_t)(40 + i));
        want[i] = engines_run(reference, &pictures[i], 1);
        cr_assert_eq(want[i]->frames[0].object_count, 4);
    }
    relay r = {.engine = e, .want = want};
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    pthread_t receiver;
    cr_assert_eq(pthread_create(&receiver, NULL, receive_all, &r), 0);
    ist_error err = {0};
    for (int i = 0; i < frames(FRAMES); i++) {
        ist_image m = pictures[i % PICTURES];
        m.tag = (uint64_t)i;
        if (!wait_until(&r, room_to_fly) || ist_submit(e, &m, 1, &err)) break;
        count_up(&r, &r.submitted, NULL);
    }
    if (err.code) count_up(&r, &r.submitted, &err);
    pthread_join(receiver, NULL);
    cr_assert_eq(r.failure.code, IST_OK, "%s", r.failure.text);
    cr_assert_eq(r.released, frames(FRAMES));
    ist_close(&e);
    ist_close(&reference);
    for (int i = 0; i < PICTURES; i++) free((void *)pictures[i].pixels);
}

/* ---- two engines ---- */

typedef struct lane {
    ist_engine *engine;
    ist_image image;
    const ist_result *last;
    ist_error failure;
} lane;

static void *run_lane(void *argument) {
    lane *l = argument;
    for (int i = 0; i < frames(50) && !l->failure.code; i++) {
        ist_release(l->engine, &l->last);
        if (!ist_submit(l->engine, &l->image, 1, &l->failure)) ist_receive(l->engine, &l->last, &l->failure);
    }
    return NULL;
}

Test(api_threads, two_engines_share_nothing) {
    ist_config a = small_config(), b = a;
    b.input_size = 320;
    b.match = IST_MATCH_TRACKS;
    lane lanes[2] = {{.engine = engines_open(&a), .image = engines_image(64, 48, 1)},
                     {.engine = engines_open(&b), .image = engines_image(99, 55, 2)}};
    const ist_result *alone[2];
    for (int i = 0; i < 2; i++) alone[i] = engines_run(lanes[i].engine, &lanes[i].image, 1);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(lanes[i].failure.code, IST_OK, "%s", lanes[i].failure.text);
        engines_same(&alone[i]->frames[0], &lanes[i].last->frames[0]);
    }
    ist_close(&lanes[0].engine); /* the other one goes on */
    ist_release(lanes[1].engine, &lanes[1].last);
    const ist_result *after = engines_run(lanes[1].engine, &lanes[1].image, 1);
    engines_same(&alone[1]->frames[0], &after->frames[0]);
    ist_close(&lanes[1].engine);
    for (int i = 0; i < 2; i++) free((void *)lanes[i].image.pixels);
}

/* ---- what is refused ---- */

/* Pixels that cannot be read hold a submit where it copies them: the handler waits for the main thread, then makes them
 * readable and lets the submit go on. */
enum { HELD_BYTES = 64 * 48 * 3 };
static void *held;
static int inside[2], go[2];

static void on_fault(int number) {
    char c = 0;
    (void)number;
    if (write(inside[1], &c, 1) != 1 || read(go[0], &c, 1) != 1 || mprotect(held, HELD_BYTES, PROT_READ)) _exit(9);
}

static void *submit_held(void *argument) {
    lane *l = argument;
    ist_submit(l->engine, &l->image, 1, &l->failure);
    return NULL;
}

Test(api_threads, a_second_thread_is_turned_away, .timeout = 600) {
    ist_config c = small_config();
    lane l = {.engine = engines_open(&c), .image = {.width = 64, .height = 48, .format = IST_RGB8}};
    ist_image other = engines_image(64, 48, 1);
    held = mmap(NULL, HELD_BYTES, PROT_NONE, MAP_PRIVATE | 0x20 /* MAP_ANONYMOUS is not POSIX */, -1, 0);
    cr_assert_neq(held, MAP_FAILED);
    l.image.pixels = held;
    cr_assert(!pipe(inside) && !pipe(go));
    struct sigaction fault = {.sa_handler = on_fault}, before;
    cr_assert_eq(sigaction(SIGSEGV, &fault, &before), 0);
    pthread_t submitter;
    cr_assert_eq(pthread_create(&submitter, NULL, submit_held, &l), 0);
    char byte;
    cr_assert_eq(read(inside[0], &byte, 1), 1);
    ist_error err = {0};
    cr_assert_eq(ist_submit(l.engine, &other, 1, &err), IST_E_STATE);
    cr_assert_str_eq(err.text, "ist_submit: another thread is in ist_submit or ist_assign of this engine");
    float cost = 1;
    int column;
    cr_assert_eq(ist_assign(l.engine, &cost, 1, 1, 1, &column, NULL, &err), IST_E_STATE);
    cr_assert_str_eq(err.text, "ist_assign: another thread is in ist_submit or ist_assign of this engine");
    const ist_result *r = &(ist_result){0};
    cr_assert_eq(ist_receive(l.engine, &r, &err), IST_E_STATE); /* is let in: nothing is in flight yet */
    cr_assert_str_eq(err.text, "receive: nothing is in flight");
    cr_assert_null(r);
    cr_assert_eq(write(go[1], &byte, 1), 1);
    pthread_join(submitter, NULL);
    cr_assert_eq(sigaction(SIGSEGV, &before, NULL), 0);
    cr_assert_eq(l.failure.code, IST_OK, "%s", l.failure.text);
    cr_assert_eq(ist_receive(l.engine, &r, &err), IST_OK, "%s", err.text);
    ist_release(l.engine, &r);
    cr_assert_eq(ist_submit(l.engine, &other, 1, &err), IST_OK, "%s", err.text); /* the door is open again */
    ist_close(&l.engine);
    munmap(held, HELD_BYTES);
    free((void *)other.pixels);
}

/* Both threads do everything: each call succeeds or is refused, none does harm. */
static void *do_everything(void *argument) {
    lane *l = argument;
    for (int i = 0; i < frames(100); i++) {
        ist_error e = {0};
        const ist_result *r = NULL;
        if (ist_submit(l->engine, &l->image, 1, &e) && e.code != IST_E_STATE) l->failure = e;
        if (ist_receive(l->engine, &r, &e) && e.code != IST_E_STATE) l->failure = e;
        ist_release(l->engine, &r);
    }
    return NULL;
}

Test(api_threads, two_threads_that_do_everything, .timeout = 600) {
    ist_config c = small_config();
    lane lanes[2] = {{.engine = engines_open(&c), .image = engines_image(64, 48, 1)}};
    lanes[1] = lanes[0];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, do_everything, &lanes[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) cr_assert_eq(lanes[i].failure.code, IST_OK, "%s", lanes[i].failure.text);
    ist_close(&lanes[0].engine);
    free((void *)lanes[0].image.pixels);
}

/* 0, or which of the calls did not do as it should. */
static int calls_of_a_child(ist_engine *e, const ist_image *image) {
    ist_error err = {0};
    const ist_result *r = NULL;
    float cost = 1;
    int column;
    const char *want = "ist_submit: the engine was opened before fork(), a child process opens its own";
    if (ist_submit(e, image, 1, &err) != IST_E_STATE || strcmp(err.text, want)) return 1;
    if (ist_receive(e, &r, &err) != IST_E_STATE || r) return 2;
    if (ist_assign(e, &cost, 1, 1, 1, &column, NULL, &err) != IST_E_STATE) return 3;
    ist_close(&e);
    return e ? 4 : 0;
}

Test(api_threads, a_child_is_turned_away, .timeout = 600) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    ist_image image = engines_image(64, 48, 1);
    ist_error err = {0};
    cr_assert_eq(ist_submit(e, &image, 1, &err), IST_OK, "%s", err.text); /* there is something to wait for */
    pid_t child = fork();
    if (!child) {
        alarm(60); /* ends a child that hangs */
        _exit(calls_of_a_child(e, &image));
    }
    int how = -1;
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how), "the child hung");
    cr_assert_eq(WEXITSTATUS(how), 0, "call %d of the child", WEXITSTATUS(how));
    const ist_result *r = NULL;
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text); /* the parent goes on */
    ist_release(e, &r);
    ist_close(&e);
    free((void *)image.pixels);
}
