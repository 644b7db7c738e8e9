/* The audit of source code: transfers and waits that C, C++ and Python sources ask for.
 *
 * Calls are OpenCL's (C and C++ bindings), CUDA's runtime, PyOpenCL's, PyTorch's and CuPy's. A file is read as tokens,
 * so comments and strings do not count; nothing is compiled or run. Python needs to know what a name holds, which
 * source_python.c works out over all files together: what cannot be known to be on a device is not reported.
 *
 * The order of work: ist_audit_source_add or ist_audit_source_skip per file, ist_audit_source_finish, writers.
 *
 * What must hold: any bytes are judged or refused with a reason, in time and memory linear in their number; each call
 * belongs to at most one finding; the findings of one line are one finding; the same files give the same report. */
#ifndef IST_AUDIT_SOURCE_H
#define IST_AUDIT_SOURCE_H

#include "audit/report.h"

enum {
    IST_AUDIT_SOURCE_LIMIT = 64 << 20,     /* bytes of a file */
    IST_AUDIT_SOURCE_TOGETHER = 256 << 20, /* bytes of Python that are looked at together; then a new group begins */
    IST_AUDIT_SOURCE_FINDINGS = 100000     /* of all files; more are counted */
};

typedef enum ist_audit_language {
    IST_AUDIT_LANGUAGE_NONE,
    IST_AUDIT_LANGUAGE_C,
    IST_AUDIT_LANGUAGE_PYTHON,
    IST_AUDIT_LANGUAGE_NOTEBOOK, /* Jupyter's, with cells in Python */
    IST_AUDIT_LANGUAGE_KERNELS   /* OpenCL C */
} ist_audit_language;

/* By the ending of the name; NONE: not source code that the audit reads. */
ist_audit_language ist_audit_language_of(const char *path);

typedef struct ist_audit_skipped {
    char *path, *reason;
} ist_audit_skipped;

/* A Python file that waits for the others. */
typedef struct ist_audit_text {
    char *path, *text;
    size_t inner, length;
    uint32_t *cells; /* notebooks: cell and line of each line; else NULL */
} ist_audit_text;

typedef struct ist_audit_source {
    ist_audit_log log;       /* the places and calls of the findings; no events */
    ist_audit_report report; /* points to log */
    uint64_t c_files, python_files, notebooks, kernel_files, kernels, lines; /* notebooks: of the Python files */
    ist_audit_skipped *skipped;
    size_t skipped_count, skipped_cap, finding_cap;
    ist_audit_text *texts;
    size_t text_count, text_cap, text_bytes;
} ist_audit_source;

/* Reads one file of ist_audit_language_of(path). `path` is what reports show; its part from `inner` on tells about
 * the project (a folder named train/). A file that is no text is noted as skipped. IST_E_MEMORY only. */
ist_status ist_audit_source_add(ist_audit_source *source, const char *path, size_t inner, const char *bytes,
                                size_t count, ist_error *err);
ist_status ist_audit_source_skip(ist_audit_source *source, const char *path, const char *reason, ist_error *err);

/* Worst first. `name`: what was audited. */
ist_status ist_audit_source_finish(ist_audit_source *source, const char *name, ist_error *err);
void ist_audit_source_free(ist_audit_source *source);

typedef struct ist_audit_file_total {
    const char *path; /* borrowed */
    uint64_t severities[IST_AUDIT_SEVERITY_COUNT];
} ist_audit_file_total;

/* Findings per file, the file with the worst first; the caller's to free. NULL when out of memory. */
ist_audit_file_total *ist_audit_source_files(const ist_audit_source *source, size_t *count);

/* Reports; SARIF and the comparison with an older report are those of report.h. */
void ist_audit_source_write_text(const ist_audit_source *source, FILE *out);
ist_status ist_audit_source_write_json(const ist_audit_source *source, FILE *out, ist_error *err);

#endif
