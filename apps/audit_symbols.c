/* From addresses to source lines, with elfutils' libdw, after the program has ended. */
#include "audit.h"

#include "base/mem.h"

#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>

/* One module's file; libdwfl finds separate debug files too. */
typedef struct module {
    Dwfl *session;
    Dwfl_Module *loaded;
    GElf_Addr base; /* where its first byte is in the session */
} module;

static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
};

static module open_module(const char *path) {
    module m = {.session = dwfl_begin(&callbacks)};
    GElf_Addr start = 0, bias = 0;
    if (!m.session) return m;
    dwfl_report_begin(m.session);
    m.loaded = dwfl_report_elf(m.session, path, path, -1, 0, false);
    dwfl_report_end(m.session, NULL, NULL);
    if (m.loaded && dwfl_module_info(m.loaded, NULL, &start, NULL, NULL, NULL, NULL, NULL)) m.base = start;
    if (m.loaded && dwfl_module_getelf(m.loaded, &bias) && !bias) m.base = start; /* linked for a fixed address */
    return m;
}

/* The address of a call is the byte before the one it returns to. */
static void resolve(ist_audit_site *site, const module *m) {
    GElf_Addr at = m->base + site->offset - 1;
    int line = 0;
    Dwfl_Line *found = dwfl_module_getsrc(m->loaded, at);
    const char *file = found ? dwfl_lineinfo(found, NULL, &line, NULL, NULL, NULL) : NULL;
    const char *function = dwfl_module_addrname(m->loaded, at);
    if (file) {
        site->file = ist_strdup(file);
        site->line = line;
    }
    if (function) site->function = ist_strdup(function);
}

void audit_resolve(ist_audit_log *log) {
    for (size_t i = 0; i < log->site_count; i++) {
        const char *path = log->sites[i].module;
        bool done = !path || !*path;
        for (size_t k = 0; k < i && !done; k++) done = log->sites[k].module && !strcmp(log->sites[k].module, path);
        if (done) continue;
        module m = open_module(path);
        for (size_t k = i; m.loaded && k < log->site_count; k++) {
            ist_audit_site *s = &log->sites[k];
            if (s->module && !strcmp(s->module, path) && s->offset && !s->file) resolve(s, &m);
        }
        if (m.session) dwfl_end(m.session);
    }
}
