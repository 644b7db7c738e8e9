/* What a project of Python files defines: modules, classes with their bases and attributes, functions, what they import
 * from each other. Nothing is run: names are found by the text alone. Private to source_py*.c and source_python.c.
 *
 * Everything has a full name, "package.module.Class.method", which is a name of the unit: its `function`, `class_`,
 * `alias` (what an import calls so) or `value` (a variable, an attribute) say what it is. A dictionary that is spelled
 * out is a class of its own, a record, with its keys for attributes.
 *
 * What must hold: any text gives an index; following imports, bases and aliases ends after a bounded number of steps.
 */
#ifndef IST_AUDIT_SOURCE_PY_PROJECT_H
#define IST_AUDIT_SOURCE_PY_PROJECT_H

#include "audit/source_unit.h"

enum { IST_PY_BASES = 4, IST_PY_FIELDS = 12, IST_PY_STARS = 8, IST_PY_STEPS = 8 };

typedef struct ist_py_module {
    uint32_t name; /* "package.module" */
    bool package;
    uint32_t stars[IST_PY_STARS]; /* modules of "from x import *" */
    uint32_t star_count;
} ist_py_module;

/* A way to call a module: by the end of its name. */
typedef struct ist_py_suffix {
    uint32_t module, next;
} ist_py_suffix;

typedef struct ist_py_class {
    uint32_t name, file;
    uint32_t bases[IST_PY_BASES]; /* classes */
    uint32_t base_count;
    uint32_t child, sibling;        /* a class that has this one as base; the next one with the same base */
    uint32_t fields[IST_PY_FIELDS]; /* names that the class body annotates, in order: of a data class */
    uint32_t field_count;
    bool is_module, is_record, data; /* an nn.Module; a dictionary; a data class or named tuple */
    bool open, linked;               /* it has bases that are not of the project; its bases know it */
} ist_py_class;

typedef struct ist_py_project {
    ist_src_unit *u;
    ist_py_module *modules; /* numbers count from 1 */
    size_t module_count, module_cap;
    ist_py_suffix *suffixes;
    size_t suffix_count, suffix_cap;
    ist_py_class *classes;
    size_t class_count, class_cap;
} ist_py_project;

/* Notes the module of the unit's file, and the packages around it. */
void ist_py_add_module(ist_py_project *project, uint32_t file);
void ist_py_project_free(ist_py_project *project);

/* Full name of what "a.b.c" means to a file of `module`: as it is when it is nothing of the project. */
uint32_t ist_py_import(ist_py_project *project, uint32_t module, const char *path);
/* "from module import *" in `module`. */
void ist_py_import_all(ist_py_project *project, uint32_t module, const char *path);
/* The function, class or variable of a full name, through what modules import; 0: none. */
uint32_t ist_py_symbol_of(const ist_py_project *project, const char *path);
/* The same for a short name within a module. */
uint32_t ist_py_symbol_in(const ist_py_project *project, uint32_t module, const char *name, size_t length);

/* The class with this full name, made when it is new; 0 when there is no room. */
uint32_t ist_py_class_of(ist_py_project *project, uint32_t name);
static inline ist_py_class *ist_py_class_at(const ist_py_project *project, uint32_t number) {
    return number && number <= project->class_count ? &project->classes[number - 1] : NULL;
}
void ist_py_add_base(ist_py_project *project, uint32_t number, uint32_t base);
void ist_py_add_field(ist_py_project *project, uint32_t number, uint32_t name);

/* The full name of a method or attribute of a class, its own or from a base, or, for methods that are nowhere there,
 * from a class made of it; 0: none. */
uint32_t ist_py_method(const ist_py_project *project, uint32_t number, const char *name, size_t length);
uint32_t ist_py_member(const ist_py_project *project, uint32_t number, const char *name, size_t length);
/* Whether all methods of the class are known. */
bool ist_py_is_closed(const ist_py_project *project, uint32_t number);
/* Whether `base` is the class or one of those it is made from. */
bool ist_py_is_made_from(const ist_py_project *project, uint32_t number, uint32_t base);

#endif
