/* The saver of `isthmus predict`: what workers have encoded becomes durable, in input order, many images at a time.
 *
 * Waiting for the disk takes about as long for a hundred files as for one, and while a file system writes its journal
 * no file can be made: so images gather, for a fifth of a second or until there are PREDICT_AT_ONCE. A double of the
 * engine that takes no time wrote 300 small images in 4.4 ms each without any wait, in 13.4 with one for each image.
 * See predict_slots.h. */
#include "predict_slots.h"

#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GATHER_MS = 200 };

void predict_clear_progress(predict_flow *f) {
    if (f->shown_columns) fprintf(stderr, "\r%*s\r", f->shown_columns, "");
    f->shown_columns = 0;
}

void predict_show_progress(predict_flow *f) {
    const predict_totals *t = f->totals;
    double now = predict_now_ms();
    if (!f->progress || now - f->shown_ms < 100) return;
    size_t seen = t->done + t->failed;
    char line[PROGRESS_MAX];
    progress_line(line, progress_columns(STDERR_FILENO), seen + t->skipped, f->limit + t->skipped, seen,
                  now - t->begin_ms);
    f->shown_ms = now;
    predict_clear_progress(f);
    f->shown_columns = (int)strlen(line);
    fputs(line, stderr);
    fflush(stderr);
}

/* A sentence that names the file, and only once. */
static void failure_sentence(const predict_slot *slot, char *text, size_t size) {
    bool named = strstr(slot->err.text, slot->source->path) != NULL;
    ist_print_ends(text, size, "%s%s%s", named ? "" : slot->source->path, named ? "" : ": ", slot->err.text);
}

static void fail_image(predict_flow *f, const predict_slot *slot) {
    char sentence[1024];
    failure_sentence(slot, sentence, sizeof sentence);
    predict_clear_progress(f);
    cli_note("%s", sentence);
    ist_record_failure(&f->totals->failures, slot->source->path, sentence);
    f->totals->failed++;
    predict_show_progress(f);
}

/* The line's memory goes to the saver, and what the saver had comes back for the slot's next image. */
static void hand_over(predict_flow *f, predict_slot *slot) {
    if (!f->saving_count) f->saving_since_ms = predict_now_ms();
    predict_saved *s = &f->saving[f->saving_count++];
    ist_text spare = s->line;
    *s = (predict_saved){.index = slot->index, .line = slot->line, .files = slot->files};
    slot->line = spare;
}

void predict_commit_written(predict_flow *f) {
    bool none = !f->saving_count;
    while (f->next_commit < f->next_encode && predict_slot_at(f, f->next_commit)->state == SLOT_WRITTEN) {
        predict_slot *slot = predict_slot_at(f, f->next_commit);
        if (slot->status && ist_disk_is_full(&slot->err)) {
            predict_fail_flow(f, &slot->err);
            break;
        }
        if (!slot->status && f->saving_count == PREDICT_AT_ONCE) break; /* the saver comes back for it */
        if (slot->status)
            fail_image(f, slot);
        else
            hand_over(f, slot);
        ist_text line = slot->line;
        ist_text_clear(&line);
        *slot = (predict_slot){.line = line};
        f->next_commit++;
    }
    if (f->saving_count && (none || f->saving_count == PREDICT_AT_ONCE || f->job->temporary))
        pthread_cond_signal(&f->save);
    if (f->next_commit == f->next_engine) pthread_cond_broadcast(&f->decoded); /* no more room will come: is_stuck */
}

/* With the lock held: waits for more images to save; false when those that are there should not wait for others. */
static bool gather(predict_flow *f) {
    double left = f->saving_since_ms + GATHER_MS - predict_now_ms();
    struct timespec until;
    if (!f->saving_count && !f->all_encoded) {
        pthread_cond_wait(&f->save, &f->lock);
        return true;
    }
    if (f->saving_count == PREDICT_AT_ONCE || f->all_encoded || f->failed || f->job->temporary || left <= 0)
        return false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(left * 1e6);
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    pthread_cond_timedwait(&f->save, &f->lock, &until);
    return true;
}

/* How many of the images became durable; all of them when IST_OK. */
static ist_status save_together(predict_flow *f, predict_saved *images, size_t count, size_t *done, ist_error *err) {
    ist_atomic_file all[PREDICT_AT_ONCE * PREDICT_IMAGE_FILES];
    size_t files = 0, complete = 0;
    *done = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < images[i].files.count; k++) all[files++] = images[i].files.list[k];
    ist_status status = ist_atomic_commit_all(all, files, f->job->temporary, &complete, err);
    ist_error later;
    for (size_t i = 0, left = complete; i < count && left >= images[i].files.count; i++) {
        left -= images[i].files.count;
        ist_status written = ist_journal_append(f->job->journal, images[i].index, &images[i].line, &later);
        if (written) {
            *err = later;
            return written;
        }
        ++*done;
    }
    ist_status synced = *done ? ist_journal_sync(f->job->journal, &later) : IST_OK;
    if (!synced) return status;
    *done = 0;
    *err = later;
    return synced;
}

static void drop(predict_saved *images, size_t count) {
    for (size_t i = 0; i < count; i++) predict_drop_files(&images[i].files);
}

/* A run that has failed still saves what it has, unless saving is what has failed. */
void *predict_saver(void *context) {
    predict_flow *f = context;
    bool broken = false;
    predict_saved *taken = calloc(PREDICT_AT_ONCE, sizeof *taken);
    ist_error err;
    pthread_mutex_lock(&f->lock);
    if (!taken) {
        ist_fail(&err, IST_E_MEMORY, "out of memory for %d images", PREDICT_AT_ONCE);
        predict_fail_flow(f, &err);
    }
    while (taken) {
        predict_commit_written(f);
        if (gather(f)) continue;
        size_t count = f->saving_count, done = 0;
        if (!count) break;
        predict_saved *now = f->saving;
        f->saving = taken;
        taken = now;
        f->saving_count = 0;
        predict_commit_written(f); /* what there was no room for */
        predict_wake_another(f);
        pthread_mutex_unlock(&f->lock);
        ist_status status = IST_OK;
        if (broken)
            drop(taken, count);
        else
            status = save_together(f, taken, count, &done, &err);
        pthread_mutex_lock(&f->lock);
        f->totals->done += done;
        broken |= status != IST_OK;
        if (status) predict_fail_flow(f, &err);
        predict_show_progress(f);
    }
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; taken && i < PREDICT_AT_ONCE; i++) ist_text_free(&taken[i].line);
    free(taken);
    return NULL;
}
