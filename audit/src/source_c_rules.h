/* The calls that the audit of C and C++ sources knows. Private to audit/src. */
#ifndef IST_AUDIT_SOURCE_C_RULES_H
#define IST_AUDIT_SOURCE_C_RULES_H

#include "audit/source_unit.h"

/* What kind of object a method is called on; SPACE: a function of the namespace cl; MEMORY: a constructor. */
typedef enum ist_c_type { IST_C_ANY, IST_C_QUEUE, IST_C_EVENT, IST_C_PROGRAM, IST_C_MEMORY, IST_C_SPACE } ist_c_type;

/* How the arguments change what a call is. */
typedef enum ist_c_form {
    IST_C_PLAIN,
    IST_C_MAP,     /* flags say which way */
    IST_C_POINTER, /* creation: flags say whether from host memory */
    IST_C_STATUS,  /* an information call: a poll when it asks for the status of execution */
    IST_C_KIND,    /* cudaMemcpy, migration: flags say which way */
    IST_C_RANGE    /* cl::copy: the direction shows in the arguments */
} ist_c_form;

/* Positions of arguments from 0; -1: none. */
typedef struct ist_c_rule {
    const char *name;
    uint8_t op, form, type;
    uint16_t flags; /* IST_SRC_ flags that hold without looking */
    int8_t blocking, host, size, options;
} ist_c_rule;

/* NULL when unknown. */
const ist_c_rule *ist_c_find_rule(const char *name, size_t length);

/* Type that a declaration with this word gives ("cl_event", "CommandQueue"). */
ist_c_type ist_c_type_of(const char *word, size_t length);

/* Whether a name is that of a scalar type. */
bool ist_c_is_scalar(const char *word, size_t length);

#endif
