/* From addresses to source lines, with elfutils' libdw, after the program has ended. */
#include "parts.h"

#include "base/mem.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
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

/* Headers that wrap OpenCL for a language: their lines say nothing, what called them does. */
static bool is_binding(const char *file) {
    static const char *const names[] = {"opencl.hpp", "cl2.hpp", "cl.hpp"};
    const char *slash = file ? strrchr(file, '/') : NULL, *name = slash ? slash + 1 : file;
    for (size_t k = 0; name && k < sizeof names / sizeof *names; k++)
        if (!strcmp(name, names[k])) return true;
    return false;
}

typedef struct source_place {
    const char *file, *function; /* owned by the session */
    int line;
} source_place;

/* Where the function that `die` stands for was inlined. */
static void step_out(Dwarf_Die *unit, Dwarf_Die *die, source_place *p) {
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files = NULL;
    size_t count = 0;
    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &attribute), &file) ||
        dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &attribute), &line) || dwarf_getsrcfiles(unit, &files, &count))
        return;
    const char *name = dwarf_filesrc(files, (size_t)file, NULL, NULL);
    if (!name) return;
    p->file = name;
    p->line = (int)line;
}

/* The function whose line it is, without what its compiler makes of the name; out of inlined bindings. */
static void look_into_scopes(const module *m, GElf_Addr at, source_place *p) {
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = dwfl_module_addrdie(m->loaded, at, &bias), *inner = NULL, *scopes = NULL;
    int found = unit ? dwarf_getscopes(unit, at - bias, &inner) : 0;
    int count = found > 0 ? dwarf_getscopes_die(&inner[0], &scopes) : 0;
    for (int k = 0; k < count; k++) {
        int tag = dwarf_tag(&scopes[k]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
        const char *name = dwarf_diename(&scopes[k]);
        if (name) p->function = name;
        if (tag == DW_TAG_subprogram || !is_binding(p->file)) break;
        step_out(unit, &scopes[k], p);
    }
    free(inner);
    free(scopes);
}

/* *to is a copy of the text, unless there is none; false without memory. */
static bool copy_text(const char *text, char **to) {
    if (!text) return true;
    *to = ist_strdup(text);
    return *to != NULL;
}

/* The address of a call is the byte before the one it returns to. */
static bool resolve(ist_audit_site *site, const module *m) {
    GElf_Addr at = m->base + site->offset - 1;
    source_place p = {.function = dwfl_module_addrname(m->loaded, at)};
    Dwfl_Line *found = dwfl_module_getsrc(m->loaded, at);
    if (found) p.file = dwfl_lineinfo(found, NULL, &p.line, NULL, NULL, NULL);
    look_into_scopes(m, at, &p);
    if (p.file) site->line = p.line;
    return copy_text(p.file, &site->file) && copy_text(p.function, &site->function);
}

static bool resolve_all(ist_audit_log *log) {
    bool good = true;
    for (size_t i = 0; i < log->site_count && good; i++) {
        const char *path = log->sites[i].module;
        bool done = !path || !*path;
        for (size_t k = 0; k < i && !done; k++) done = log->sites[k].module && !strcmp(log->sites[k].module, path);
        if (done) continue;
        module m = open_module(path);
        for (size_t k = i; m.loaded && k < log->site_count && good; k++) {
            ist_audit_site *s = &log->sites[k];
            if (s->module && !strcmp(s->module, path) && s->offset && !s->file) good = resolve(s, &m);
        }
        if (m.session) dwfl_end(m.session);
    }
    return good;
}

/* A call that was not inlined into its caller: the caller's place, unless that is not known either. */
static bool leave_binding(ist_audit_log *log, ist_audit_site *site) {
    const ist_audit_site *outer = site;
    while (outer && is_binding(outer->file)) outer = outer->outer < log->site_count ? &log->sites[outer->outer] : NULL;
    char *file = NULL, *function = NULL;
    if (!outer || outer == site || !outer->file) return true;
    if (!copy_text(outer->file, &file) || !copy_text(outer->function, &function)) {
        free(file);
        return false;
    }
    free(site->file);
    free(site->function);
    site->file = file;
    site->function = function;
    site->line = outer->line;
    return true;
}

ist_status audit_resolve(ist_audit_log *log, ist_error *err) {
    bool good = resolve_all(log);
    for (size_t i = log->site_count; good && i-- > 0;) good = leave_binding(log, &log->sites[i]); /* outer come first */
    return good ? ist_audit_merge_sites(log, err) : ist_fail(err, IST_E_MEMORY, "out of memory for names of places");
}
