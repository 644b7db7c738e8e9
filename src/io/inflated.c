/* See inflated.h. Inflating is ISA-L's. */
#include "io/inflated.h"

#include <isa-l/igzip_lib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT = 1 << 15, OUTPUT = 1 << 16 };

struct ist_inflated {
    const ist_byte_source *file;
    uint64_t begin, from; /* where the stream begins, and where its next input is, in the file */
    uint64_t at;          /* what the first byte of `output` is in the source; */
    size_t ready;         /* so many are there */
    bool damaged;
    struct inflate_state state;
    uint8_t input[INPUT], output[OUTPUT];
};

static void rewind_stream(ist_inflated *f) {
    isal_inflate_init(&f->state);
    f->from = f->at = f->begin;
    f->ready = 0;
    f->damaged = false;
}

/* The next piece of the stream; false at its end, and where it is damaged or cut. */
static bool next(ist_inflated *f) {
    struct inflate_state *s = &f->state;
    f->at += f->ready;
    f->ready = 0;
    s->next_out = f->output;
    s->avail_out = OUTPUT;
    while (s->avail_out && s->block_state != ISAL_BLOCK_FINISH && !f->damaged) {
        if (!s->avail_in) {
            s->avail_in = (uint32_t)ist_byte_source_read(f->file, f->from, f->input, INPUT);
            s->next_in = f->input;
            f->from += s->avail_in;
        }
        const uint32_t in = s->avail_in, out = s->avail_out;
        const int code = isal_inflate(s);
        const bool stuck = in == s->avail_in && out == s->avail_out && s->block_state != ISAL_BLOCK_FINISH;
        f->damaged = code < 0 || stuck;
    }
    f->ready = OUTPUT - s->avail_out;
    return f->ready > 0;
}

ist_status ist_inflated_open(const ist_byte_source *file, uint64_t begin, uint64_t most, const char *name,
                             ist_byte_source *source, ist_error *err) {
    ist_inflated *f = malloc(sizeof *f);
    if (!f) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    f->file = file;
    f->begin = begin;
    rewind_stream(f);
    ist_status status = IST_OK;
    while (!status && next(f))
        if (f->at + f->ready - begin > most)
            status = ist_fail(err, IST_E_LIMIT, "%s: inflates to more than the limit of %llu bytes", name,
                              (unsigned long long)most);
    if (!status && f->damaged) status = ist_fail(err, IST_E_INPUT, "%s: its deflated part is damaged or cut", name);
    if (status) {
        ist_inflated_free(f);
        return status;
    }
    *source = (ist_byte_source){.fd = -1, .inflated = f, .size = f->at + f->ready};
    rewind_stream(f);
    return IST_OK;
}

size_t ist_inflated_read(ist_inflated *f, uint64_t at, void *to, size_t count) {
    uint8_t *p = to;
    size_t done = 0;
    if (at < f->begin) {
        const size_t plain = f->begin - at < count ? (size_t)(f->begin - at) : count;
        done = ist_byte_source_read(f->file, at, to, plain);
        if (done < plain) return done;
    }
    if (done < count && at + done < f->at) rewind_stream(f);
    while (done < count) {
        const uint64_t skip = at + done - f->at;
        if (skip < f->ready) {
            const size_t many = f->ready - (size_t)skip < count - done ? f->ready - (size_t)skip : count - done;
            memcpy(p + done, f->output + skip, many);
            done += many;
        } else if (!next(f)) {
            break;
        }
    }
    return done;
}

void ist_inflated_free(ist_inflated *inflated) {
    free(inflated);
}
