/* Dies in the middle of its work, in the way the argument says: exit, abort, kill. What it did is to be reported. */
#include "common.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    bench *s = open_bench();
    const char *how = argc > 1 ? argv[1] : "";
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBuffer(s->queue, s->a, CL_TRUE, 0, sizeof s->host, s->host, 0, NULL, NULL), "w"); /* FAULT blocking_transfer */
        run(s, s->add);
        check(clEnqueueReadBuffer(s->queue, s->b, CL_TRUE, 0, sizeof s->result, s->result, 0, NULL, NULL), "read");
    }
    printf("working\n");
    fflush(stdout);
    if (!strcmp(how, "exit")) _exit(42);
    if (!strcmp(how, "abort")) abort();
    raise(SIGKILL);
    return 0;
}
