/* isthmus audit. The command is of audit/app; here is its own run: `isthmus predict`, with the engine's ledger as the
 * log. */
#include "audit_app/command.h"
#include "base/mem.h"
#include "cli.h"
#include "own_folder.h"
#include "pipeline/crossings.h"
#include "predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The promise of ARCHITECTURE.md, per submission. */
#define PROMISE "reads=1,writes=1,waits=1"

typedef struct follower {
    ist_audit_log *log;
    uint64_t cursor;
    uint32_t open_frame; /* whose write was seen and whose read was not */
    ist_status status;
    ist_error err;
} follower;

static ist_status find_place(ist_audit_log *log, const ist_site *here, uint32_t *index, ist_error *err) {
    for (size_t i = 0; i < log->site_count; i++)
        if (log->sites[i].line == here->line && !strcmp(log->sites[i].file, here->file)) {
            *index = (uint32_t)i;
            return IST_OK;
        }
    ist_audit_site site = {.file = (char *)(uintptr_t)here->file,
                           .function = (char *)(uintptr_t)here->function,
                           .line = here->line,
                           .outer = IST_AUDIT_NONE};
    return ist_audit_add_site(log, &site, index, err);
}

/* A wait with the name of a read of its frame completes it. */
static uint64_t completes(const ist_audit_log *log, const ist_audit_event *wait) {
    for (size_t i = log->event_count; i-- > 0;) {
        const ist_audit_event *e = &log->events[i];
        if (e->frame == wait->frame && e->op == IST_AUDIT_READ && e->label == wait->label) return e->bytes;
        if (e->frame && e->frame + 64 < wait->frame) break;
    }
    return 0;
}

/* Builds know no frame: one between the write and the read of a frame is in it. */
static uint32_t frame_of(follower *f, const ist_ledger_entry *l) {
    if (l->kind == IST_CROSS_WRITE) f->open_frame = (uint32_t)l->frame;
    if (l->kind == IST_CROSS_READ) f->open_frame = 0;
    return l->kind == IST_CROSS_BUILD ? f->open_frame : (uint32_t)l->frame;
}

static ist_status add_entry(follower *f, const ist_ledger_entry *l, ist_error *err) {
    static const struct {
        ist_audit_op op;
        const char *entry;
    } kinds[IST_CROSS_KINDS] = {[IST_CROSS_WRITE] = {IST_AUDIT_WRITE, "ist_write"},
                                [IST_CROSS_READ] = {IST_AUDIT_READ, "ist_read"},
                                [IST_CROSS_MAP] = {IST_AUDIT_MAP, "ist_pinned_create"},
                                [IST_CROSS_UNMAP] = {IST_AUDIT_UNMAP, "ist_pinned_release"},
                                [IST_CROSS_COPY] = {IST_AUDIT_COPY, "ist_copy"},
                                [IST_CROSS_WAIT] = {IST_AUDIT_WAIT, "ist_wait"},
                                [IST_CROSS_FLUSH] = {IST_AUDIT_FLUSH, "ist_flush"},
                                [IST_CROSS_BUILD] = {IST_AUDIT_BUILD, "ist_kernel_create"}};
    ist_audit_log *log = f->log;
    ist_audit_event e = {.op = (uint16_t)kinds[l->kind].op,
                         .frame = frame_of(f, l),
                         .repeat = 1,
                         .bytes = l->bytes,
                         .at_ms = l->at_ms,
                         .wait_ms = l->wait_ms,
                         .move_ms = l->move_ms};
    IST_TRY(ist_audit_add_label(log, kinds[l->kind].entry, &e.entry, err));
    IST_TRY(ist_audit_add_label(log, l->what, &e.label, err));
    IST_TRY(find_place(log, &l->site, &e.site, err));
    if (l->kind == IST_CROSS_WAIT) e.bytes = completes(log, &e);
    return ist_audit_add_event(log, &e, err);
}

static void follow(void *arg, ist_engine *engine) {
    enum { AT_ONCE = 64 };
    follower *f = arg;
    ist_ledger_entry entries[AT_ONCE];
    for (int n = AT_ONCE; n == AT_ONCE && !f->status;) {
        n = ist_engine_crossings(engine, &f->cursor, &f->log->dropped, entries, AT_ONCE);
        for (int i = 0; i < n && !f->status; i++) f->status = add_entry(f, &entries[i], &f->err);
    }
}

static int run(int argc, char **argv, follower *f, bool temporary) {
    predict_job job = {.received = follow, .received_arg = f, .temporary = temporary};
    return predict_command(argc, argv, &job);
}

static bool has_option(int argc, char **argv, const char *prefix) {
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], prefix, strlen(prefix))) return true;
    return false;
}

/* Without -o the results are of no interest: the least there is, into a folder that goes away. */
static int run_without_output(int argc, char **argv, follower *f) {
    char folder[4096];
    if (has_option(argc, argv, "--sav")) return cli_usage("audit", "--save needs -o DIR");
    int code = own_folder_make("audit", folder, sizeof folder);
    if (code) return code;
    char *extra[] = {"-o", folder, "--save", "ndjson", "--quiet"};
    enum { EXTRA = sizeof extra / sizeof *extra };
    char **all = calloc((size_t)argc + EXTRA + 1, sizeof *all);
    if (!all) code = cli_fail(CLI_FAILED, "out of memory");
    if (all) {
        all[0] = argv[0];
        memcpy(all + 1, extra, sizeof extra);
        memcpy(all + 1 + EXTRA, argv + 1, (size_t)(argc - 1) * sizeof *all);
        code = run(argc + EXTRA, all, f, true);
    }
    free(all);
    own_folder_remove(folder, 0);
    return code;
}

/* A run that failed goes before a broken budget, and that before a run of which some inputs failed: what it saw of the
 * others is complete. Without a budget the engine's own promise holds. */
static int audit_predict(int argc, char **argv, audit_options *o) {
    ist_audit_log log = {0};
    ist_error err;
    follower f = {.log = &log};
    if (!o->budget) {
        o->budget = PROMISE;
        ist_audit_parse_budget(PROMISE, &o->limits, &err);
    }
    bool keeps = has_option(argc, argv, "-o") || has_option(argc, argv, "--ou");
    int code = keeps ? run(argc, argv, &f, false) : run_without_output(argc, argv, &f);
    int judged = CLI_SUCCESS;
    log.program = ist_strdup("isthmus predict");
    if (!log.program) judged = cli_fail(CLI_FAILED, "out of memory");
    if (f.status) judged = cli_fail(CLI_FAILED, "%s", f.err.text);
    if (!judged && log.event_count) judged = audit_conclude(&log, o, "-");
    ist_audit_log_free(&log);
    bool ran = !code || code == CLI_PARTIAL;
    return ran && judged ? judged : code;
}

int cmd_audit(int argc, char **argv) {
    return audit_command(argc, argv, audit_predict);
}
