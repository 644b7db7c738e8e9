/* The reading of one Python file. Private to source_py*.c and source_python.c.
 *
 * source_python.c walks through statements and scopes, source_py_expr.c through expressions; source_py_calls.c knows
 * functions and methods. What an expression gives is an ist_src_value of the kinds below, worked out along the text:
 * the last assignment counts, branches are not told apart. Attributes of self, results and parameters of functions are
 * known from the pass before; after three passes a value has travelled through two calls.
 *
 * What must hold: nothing is reported of a value that is not known to be a tensor, but for calls that only tensors
 * have; depth is bounded. */
#ifndef IST_AUDIT_SOURCE_PY_H
#define IST_AUDIT_SOURCE_PY_H

#include "audit/source_py_lex.h"
#include "audit/source_unit.h"

/* ist_src_value.kind */
enum {
    IST_PY_UNKNOWN,
    IST_PY_HOST,        /* numbers, strings, NumPy arrays, containers of those */
    IST_PY_HOST_TENSOR, /* a tensor in host memory */
    IST_PY_TENSOR,      /* a tensor that is, or may be, on a device; a container of such */
    IST_PY_MODULE,      /* something that computes when it is called */
    IST_PY_QUEUE,
    IST_PY_EVENT,
    IST_PY_PROGRAM,
    IST_PY_BUFFER,
    IST_PY_DEVICE,
    IST_PY_HOST_DEVICE,
    IST_PY_DTYPE
};

/* ist_src_value.flags */
enum {
    IST_PY_SURE = 1,     /* one tensor, not a container */
    IST_PY_MASK = 2,     /* of truth values */
    IST_PY_CONST = 4,    /* spelled out in the source */
    IST_PY_DERIVED = 8,  /* computed on the host from what was read */
    IST_PY_ARRAY = 16,   /* CuPy's or PyOpenCL's */
    IST_PY_STRING_ = 32, /* text */
    IST_PY_PLACED = 64,  /* it came from, or went to, a device for certain */
    IST_PY_MADE = 128    /* zeros, ones and so on, made in host memory */
};

enum { IST_PY_ARGS = 12, IST_PY_ELEMENTS = 8, IST_PY_DEPTH = 150, IST_PY_BLOCKS = 128, IST_PY_PATH = 128 };

typedef struct ist_py_arg {
    uint32_t keyword; /* name; 0: by position */
    uint32_t first, end;
    ist_src_value value;
} ist_py_arg;

typedef struct ist_py_call {
    const char *path; /* "numpy.asarray", "self.model", "" when there is no path */
    const char *name; /* last part of it */
    size_t name_length;
    uint32_t name_id, line;
    bool method, imported; /* called on `on`; the path begins with a module's name */
    bool alone;            /* a statement of its own begins with the receiver */
    uint32_t base;         /* name of the receiver when it is one, else 0 */
    ist_src_value on;
    ist_py_arg args[IST_PY_ARGS];
    uint32_t arg_count;
    char *chain; /* label so far of calls that transfer: ".detach().cpu()" */
} ist_py_call;

typedef struct ist_py_binding {
    uint32_t name, before;
    ist_src_value value;
} ist_py_binding;

typedef enum ist_py_block_kind { IST_PY_PLAIN_BLOCK, IST_PY_FUNCTION_BLOCK, IST_PY_CLASS_BLOCK } ist_py_block_kind;

typedef struct ist_py_block {
    uint32_t indent, function, loop, owner, branch;
    size_t bindings, base;
    uint32_t narrowed; /* as in the reader, for the block */
    ist_src_value before_narrowing;
    uint8_t kind;
    bool module_class, training;
} ist_py_block;

typedef struct ist_py_reader {
    ist_src_unit *u;
    const ist_py_token *tokens;
    uint32_t at, end; /* in tokens */
    uint32_t line_start;
    uint32_t function, loop, owner;
    bool module_class, training; /* the class is a module; the branch is for training */
    bool cached;                 /* a decorator keeps the results of the function that follows */
    bool torch, numpy, cupy, opencl;
    unsigned depth;
    ist_src_value elements[IST_PY_ELEMENTS]; /* of the tuple, or of what is iterated, that ended at element_end */
    uint32_t element_count, element_end;
    ist_src_value stored;      /* what the subscript in front of "=" gets */
    uint32_t branch, branches; /* block of the line; blocks so far */
    uint32_t narrowed;         /* name that this line's condition says to be a tensor, 0: none */
    ist_src_value before_narrowing;
    ist_py_binding *bindings;
    size_t binding_count, binding_cap, base; /* base: where those of the function begin */
    ist_py_block blocks[IST_PY_BLOCKS];
    size_t block_count;
} ist_py_reader;

/* ---- source_py_expr.c ---- */

ist_src_value ist_py_expression(ist_py_reader *reader);      /* a test; ends before "," and so on */
ist_src_value ist_py_expression_list(ist_py_reader *reader); /* tests with commas: a tuple */
/* "for targets in iterable if ..." from reader->at on, up to `end`; the loop stays open. */
void ist_py_clauses(ist_py_reader *reader, uint32_t end);
void ist_py_assign(ist_py_reader *reader, uint32_t first, uint32_t end, ist_src_value value);

/* ---- source_py_calls.c ---- */

ist_src_value ist_py_apply(ist_py_reader *reader, ist_py_call *call);
/* The attribute `name` of a value. */
ist_src_value ist_py_attribute(ist_py_reader *reader, ist_src_value on, const char *path, const char *name,
                               size_t length);
/* The value decides about a branch. */
void ist_py_truth(ist_py_reader *reader, ist_src_value value, uint32_t line);
void ist_py_format(ist_py_reader *reader, ist_src_value value, uint32_t line, const char *label);
uint32_t ist_py_hit(ist_py_reader *reader, ist_src_op op, unsigned flags, uint32_t line, const char *label);
bool ist_py_is_model_name(const char *name, size_t length);

/* ---- values ---- */

static inline bool ist_py_is_sure(ist_src_value v) {
    return v.kind == IST_PY_TENSOR && (v.flags & IST_PY_SURE);
}
static inline ist_src_value ist_py_of(unsigned kind, unsigned flags) {
    return (ist_src_value){.kind = (uint8_t)kind, .flags = (uint8_t)flags};
}
/* Either of two. */
ist_src_value ist_py_either(ist_src_value a, ist_src_value b);
/* The result of an operation on both. */
ist_src_value ist_py_combine(ist_src_value a, ist_src_value b);

/* ---- names (source_python.c) ---- */

ist_src_value ist_py_lookup(const ist_py_reader *reader, uint32_t name);
void ist_py_bind(ist_py_reader *reader, uint32_t name, ist_src_value value);
/* Attributes of self, kept over the whole class. */
uint32_t ist_py_attribute_name(ist_py_reader *reader, const char *name, size_t length);
/* The name can only be a tensor in this function, which a later line shows. */
void ist_py_hint(ist_py_reader *reader, uint32_t name);

static inline bool ist_py_is(const ist_py_token *t, const char *text) {
    const char *p = t->at;
    uint32_t n = t->length;
    if (t->kind != IST_PY_NAME && t->kind != IST_PY_SIGN) return false;
    for (; n && *text && *p == *text; n--) p++, text++;
    return !n && !*text;
}

#endif
