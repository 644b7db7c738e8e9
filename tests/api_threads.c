/* The one way an engine may be shared: submit on one thread, receive and release on another; and engines side by side.
 */
#include "support/engines.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 300, PICTURES = 3, IN_FLIGHT = 3 };

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
    for (int i = 0; i < FRAMES; i++) {
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
    for (int i = 0; i < FRAMES; i++) {
        ist_image m = pictures[i % PICTURES];
        m.tag = (uint64_t)i;
        if (!wait_until(&r, room_to_fly) || ist_submit(e, &m, 1, &err)) break;
        count_up(&r, &r.submitted, NULL);
    }
    if (err.code) count_up(&r, &r.submitted, &err);
    pthread_join(receiver, NULL);
    cr_assert_eq(r.failure.code, IST_OK, "%s", r.failure.text);
    cr_assert_eq(r.released, FRAMES);
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
    for (int i = 0; i < 50 && !l->failure.code; i++) {
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
