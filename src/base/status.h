/* Status codes and the error value: how every failure in the library travels.
 *
 * A function that can fail returns `ist_status` and, on failure, fills an `ist_error` the caller owns with one
 * sentence that has the numbers in it. Nothing here allocates, prints or exits. The codes are the public ones of
 * include/isthmus.h. */
#ifndef IST_BASE_STATUS_H
#define IST_BASE_STATUS_H

#include "isthmus.h"

#include <stdarg.h>
#include <stddef.h>

#if defined(__GNUC__)
#define IST_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define IST_PRINTF(f, a)
#endif

/* vsnprintf and snprintf for sentences, which name a file first and say at the end what is wrong with it: of one that
 * does not fit (size: 16 bytes at least), "..." takes the place of the middle. A character's UTF-8 stays whole. */
void ist_print_ends_v(char *out, size_t size, const char *fmt, va_list ap);
void ist_print_ends(char *out, size_t size, const char *fmt, ...) IST_PRINTF(3, 4);

/* Fills `err` (may be NULL) and returns `code`, so that a failure is one statement:
 *     return ist_fail(err, IST_E_WEIGHTS, "%s: want [%d], file has [%d]", name, want, have);
 * `code` is evaluated twice: compilers then see that a failure is not IST_OK and what it leaves unset is not read. */
#define ist_fail(err, code, ...) ist_after(ist_error_fill(err, code, __VA_ARGS__), code)

ist_status ist_error_fill(ist_error *err, ist_status code, const char *fmt, ...) IST_PRINTF(3, 4);
static inline ist_status ist_after(ist_status filled, ist_status code) {
    (void)filled;
    return code;
}

/* Puts "context: " in front of the sentence already in `err`; returns err->code (IST_OK when err is NULL). */
ist_status ist_fail_context(ist_error *err, const char *fmt, ...) IST_PRINTF(2, 3);

/* The word for `n` of something in a sentence. */
static inline const char *ist_plural(unsigned long long n, const char *one, const char *many) {
    return n == 1 ? one : many;
}

/* Forwards a failure to the caller; `expr` is evaluated once. */
#define IST_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        ist_status ist_try_status_ = (expr);                                                                           \
        if (ist_try_status_ != IST_OK) return ist_try_status_;                                                         \
    } while (0)

#endif
