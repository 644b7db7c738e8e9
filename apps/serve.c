/* The life of `isthmus segment --serve`: see serve.h. The address comes first, since a port that is taken is said at
 * once; then the first engine, so that a bad checkpoint or device is an exit code. */
#include "serve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_first(serve *s) {
    predict_job *job = s->job;
    bool demo = !job->options->segmenter;
    int code = predict_find_checkpoints(job->options);
    if (!code) code = predict_open_engine(job);
    s->engines[SERVE_THREE_MASKS].engine = job->engine;
    job->engine = NULL;
    ahead_end(&job->helpers);
    if (!code && demo && !job->options->quiet)
        cli_note(
            "the demo weights were trained with boxes: drag one; for clicks name a checkpoint with --segmenter FILE");
    return code;
}

/* The one line of standard output is for whoever opens a browser. */
static int announce(const serve *s) {
    const serve_address *a = &s->address;
    const predict_job *job = s->job;
    if (printf("http://%s:%d/\n", a->shown, a->port) < 0 || fflush(stdout))
        return cli_fail(CLI_FAILED, "standard output: %s", strerror(errno));
    if (!a->loopback)
        cli_note("%s is not this machine alone: whoever reaches port %d sees the images and uses the device", a->shown,
                 a->port);
    if (!job->options->quiet)
        cli_note("%zu %s on %s; Ctrl-C ends", job->sources.count, ist_plural(job->sources.count, "image", "images"),
                 job->engine_info.device.name);
    return CLI_SUCCESS;
}

static int serve_until_interrupt(serve *s) {
    serve_server *server = NULL;
    ist_error err;
    ist_status status = serve_start(s, &server, &err);
    int code = status ? CLI_SUCCESS : announce(s);
    while (!status && !code && !*s->job->interrupted) status = serve_wait(server, &err);
    serve_stop(&server);
    return status ? cli_fail(CLI_FAILED, "%s", err.text) : code;
}

int serve_run(predict_job *job) {
    serve s = {.job = job, .address.socket = -1};
    int code = serve_listen(job->options->serve, &s.address);
    if (!code) code = open_first(&s);
    if (!code) code = serve_until_interrupt(&s);
    if (s.address.socket >= 0) close(s.address.socket);
    serve_engines_close(&s);
    return code;
}
