/* Frames that no pattern shows: the program marks them. Two reads in the second. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    for (int pass = 0; pass < 2; pass++) {
        clGetExtensionFunctionAddressForPlatform(s->platform, "isthmus_frame");
        run(s, s->add);
        check(clEnqueueReadBuffer(s->queue, s->b, CL_TRUE, 0, 64, s->result, 0, NULL, NULL), "read");
        if (pass == 1)
            check(clEnqueueReadBuffer(s->queue, s->b, CL_TRUE, 64, 64, s->host, 0, NULL, NULL), "read"); /* BREACH */
    }
    close_bench(s);
    return 0;
}
