/* In place of tiff.c, dicom.cc and video.c in a program that is to start fast: there each is a module of its own
 * (isthmus-format-NAME.so), which is loaded when the first file of its format is met. Their libraries are a hundred
 * shared objects, and loading those takes several times what all else of a start does.
 *
 * A module is looked for where the program is (a build), below the prefix that the program is in, else where it was to
 * be installed, and nowhere else. Installed ones are in a folder of their version: another may take this one's place
 * while the program runs. What is loaded stays. */
#define _GNU_SOURCE /* RTLD_NODELETE */
#include "io/image_format.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEAR "../" ISTHMUS_LIBDIR "/isthmus/" ISTHMUS_VERSION "/"
#define FAR  ISTHMUS_FULL_LIBDIR "/isthmus/" ISTHMUS_VERSION "/"

static void find(const char *format, char *path, size_t size) {
    static const char *const near[] = {"", NEAR};
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash) slash[1] = '\0';
    for (size_t i = 0; slash && i < sizeof near / sizeof *near; i++)
        if ((size_t)snprintf(path, size, "%s%sisthmus-format-%s.so", own, near[i], format) < size &&
            !access(path, R_OK))
            return;
    snprintf(path, size, FAR "isthmus-format-%s.so", format);
}

/* `container` is what the module has under the name `symbol`. */
static ist_status load(const char *format, const char *symbol, const char *name, const ist_container **container,
                       ist_error *err) {
    char path[4200];
    ist_status status = IST_OK;
    find(format, path, sizeof path);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    *container = module ? dlsym(module, symbol) : NULL;
    if (!*container) {
        const char *why = dlerror();
        status = ist_fail(err, IST_E_INPUT, "%s: what reads it cannot be loaded: %s", name, why ? why : path);
    }
    if (module) dlclose(module);
    return status;
}

typedef struct loaded {
    const ist_container *container;
    void *state; /* its own */
} loaded;

static ist_status open_in(const char *format, const char *symbol, const ist_byte_source *source, const char *name,
                          size_t max_pixels, void **state, size_t *frames, ist_image_size *largest, ist_error *err) {
    const ist_container *container;
    IST_TRY(load(format, symbol, name, &container, err));
    loaded *l = malloc(sizeof *l);
    if (!l) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    *l = (loaded){.container = container};
    ist_status status = l->container->open(source, name, max_pixels, &l->state, frames, largest, err);
    if (status)
        free(l);
    else
        *state = l;
    return status;
}

static ist_status read_loaded(void *state, size_t frame, ist_bitmap *out, ist_error *err) {
    loaded *l = state;
    return l->container->read(l->state, frame, out, err);
}

static void close_loaded(void *state) {
    loaded *l = state;
    l->container->close(l->state);
    free(l);
}

#define CONTAINER(format, windows)                                                                                     \
    static ist_status open_##format(const ist_byte_source *source, const char *name, size_t max_pixels, void **state,  \
                                    size_t *frames, ist_image_size *largest, ist_error *err) {                         \
        return open_in(#format, "ist_" #format "_container", source, name, max_pixels, state, frames, largest, err);   \
    }                                                                                                                  \
    const ist_container ist_##format##_container = {open_##format, read_loaded, close_loaded, windows};

CONTAINER(tiff, false)
CONTAINER(dicom, true)
CONTAINER(video, false)
