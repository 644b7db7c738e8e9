/* Opens the OpenCL loader itself, as language bindings do. */
#include "common.h"

#include <dlfcn.h>

typedef cl_int CL_API_CALL write_function(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint,
                                          const cl_event *, cl_event *);
typedef cl_int CL_API_CALL read_function(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint,
                                         const cl_event *, cl_event *);

int main(void) {
    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    write_function *write = loader ? (write_function *)dlsym(loader, "clEnqueueWriteBuffer") : NULL;
    read_function *read = loader ? (read_function *)dlsym(loader, "clEnqueueReadBuffer") : NULL;
    if (!write || !read) return 1;
    bench *s = open_bench();
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(write(s->queue, s->a, CL_TRUE, 0, sizeof s->host, s->host, 0, NULL, NULL), "w"); /* FAULT blocking_transfer */
        run(s, s->add);
        for (int k = 0; k < 5; k++)
            check(read(s->queue, s->b, CL_TRUE, 4 * (size_t)k, 4, &s->result[k], 0, NULL, NULL), "r"); /* FAULT scalar_read */
    }
    printf("%g\n", (double)s->result[3]);
    close_bench(s);
    return 0;
}
