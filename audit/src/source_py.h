/* The reading of Python files, all of a project. Private to source_py*.c and source_python.c.
 *
 * source_python.c goes over the files, source_py_scopes.c through statements and scopes, source_py_expr.c through
 * expressions; source_py_calls.c knows functions and methods, source_py_flow.c what goes through them. What an
 * expression gives is an ist_src_value of the kinds below, worked out along the text: the last assignment counts,
 * branches are not told apart. Attributes, results and parameters of functions are known from the pass before; passes
 * go on until nothing changes, at most IST_PY_PASSES times.
 *
 * What must hold: nothing is reported of a value that is not known to be a tensor, but for calls that only tensors
 * have; depth is bounded. */
#ifndef IST_AUDIT_SOURCE_PY_H
#define IST_AUDIT_SOURCE_PY_H

#include "audit/source_py_lex.h"
#include "audit/source_py_project.h"

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
    IST_PY_DTYPE,
    IST_PY_FUNCTION, /* a function of the project, `of` */
    IST_PY_CLASS     /* a class of the project, `of`; of other kinds `of` is the class of the value */
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
    IST_PY_MADE =
        128, /* tensors: zeros, ones and so on, made in host memory; HOST: None, an empty list or dictionary */
    IST_PY_LOADED = 128, /* UNKNOWN: of a data loader, so in host memory unless something moved it */
    IST_PY_INDICES = 32, /* tensors: of whole numbers, whatever their name says */
    IST_PY_OR_HOST = 8   /* devices: the host at times */
};

enum {
    IST_PY_ARGS = 20,
    IST_PY_ELEMENTS = 8,
    IST_PY_DEPTH = 150,
    IST_PY_BLOCKS = 128,
    IST_PY_PATH = 256,
    IST_PY_PASSES = 8,
    IST_PY_CHANGES = 256,
    IST_PY_ASKED = 6
};

typedef struct ist_py_arg {
    uint32_t keyword; /* name; 0: by position */
    uint32_t first, end;
    bool star; /* *arguments: not known which */
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

/* A name and what it held before, or, of a branch that was left for another, what it holds at its end. */
typedef struct ist_py_change {
    uint32_t name;
    ist_src_value value;
} ist_py_change;

/* A name that a condition says to be a tensor, or none, 0: no name; what it holds so, and what it held before. `exact`:
 * the condition says no more than that. */
typedef struct ist_py_narrowing {
    uint32_t name;
    bool tensor, exact;
    ist_src_value now, before;
} ist_py_narrowing;

/* Names that the conditions of an "if" ask about. */
typedef struct ist_py_asked {
    uint32_t names[IST_PY_ASKED], count;
} ist_py_asked;

typedef enum ist_py_block_kind { IST_PY_PLAIN_BLOCK, IST_PY_FUNCTION_BLOCK, IST_PY_CLASS_BLOCK } ist_py_block_kind;

typedef struct ist_py_block {
    uint32_t indent, function, loop, owner, class_, branch;
    size_t bindings, base;
    ist_py_narrowing narrowed; /* as in the reader, for the block */
    uint8_t kind;
    bool module_class, training;
    bool branch_of_if;              /* if, elif or else */
    bool is_except, is_else, ended; /* ended: by a return or the like, so that nothing of it goes on behind the "if" */
    ist_py_asked asked;
    uint32_t changes, left; /* where those of the whole "if" begin, and where those of earlier branches end */
} ist_py_block;

typedef struct ist_py_reader {
    ist_src_unit *u;
    ist_py_project *p;
    uint32_t module, stamp; /* of the file; stamp: of the file in this pass */
    uint32_t *imports;      /* names with an alias in this file */
    size_t import_count, import_cap;
    const ist_py_token *tokens;
    uint32_t at, end; /* in tokens */
    uint32_t line_start;
    uint32_t function, loop, owner, class_; /* owner: name of the class */
    bool module_class, training;            /* the class is a module; the branch is for training */
    /* Decorators of what follows: results are kept; it is read like an attribute; its fields are its arguments. */
    bool cached, property, data;
    bool torch, numpy, cupy, opencl;
    unsigned depth;
    ist_src_value elements[IST_PY_ELEMENTS]; /* of the tuple, or of what is iterated, that ended at element_end */
    uint32_t element_count, element_end;
    ist_src_value stored;      /* what the subscript in front of "=" gets */
    uint32_t branch, branches; /* block of the line; blocks so far */
    ist_py_narrowing narrowed; /* by this line's condition */
    ist_py_narrowing excluded; /* by that of the branch before this one */
    ist_py_binding *bindings;
    size_t binding_count, binding_cap, base; /* base: where those of the function begin */
    ist_py_block blocks[IST_PY_BLOCKS];
    size_t block_count;
    ist_py_change changes[IST_PY_CHANGES]; /* of names, in the blocks that are open; more are not kept */
    uint32_t change_count, branch_changes; /* branch_changes: of the "if" that goes on with this line */
    bool goes_on;                          /* this line is a further branch */
    ist_py_asked asked;                    /* by the branches before it */
} ist_py_reader;

/* ---- source_py_expr.c ---- */

ist_src_value ist_py_expression(ist_py_reader *reader);      /* a test; ends before "," and so on */
ist_src_value ist_py_expression_list(ist_py_reader *reader); /* tests with commas: a tuple */
/* "for targets in iterable if ..." from reader->at on, up to `end`; the loop stays open. */
void ist_py_clauses(ist_py_reader *reader, uint32_t end);
void ist_py_assign(ist_py_reader *reader, uint32_t first, uint32_t end, ist_src_value value);

/* ---- source_py_calls.c ---- */

ist_src_value ist_py_apply(ist_py_reader *reader, ist_py_call *call);
/* The attribute `name` of a value; imported: the path begins with a module. */
ist_src_value ist_py_attribute(ist_py_reader *reader, ist_src_value on, bool imported, const char *path,
                               const ist_py_token *name);
/* The value decides about a branch. */
void ist_py_truth(ist_py_reader *reader, ist_src_value value, uint32_t line);
void ist_py_format(ist_py_reader *reader, ist_src_value value, uint32_t line, const char *label);
uint32_t ist_py_hit(ist_py_reader *reader, ist_src_op op, unsigned flags, uint32_t line, const char *label);
bool ist_py_is_model_name(const char *name, size_t length);

/* ---- source_py_flow.c: what goes through functions and attributes ---- */

/* The value is uploaded by this hit. */
void ist_py_uploaded(ist_py_reader *reader, uint32_t hit, ist_src_value value);
/* The value goes to a call of something that is not known. */
void ist_py_handed(ist_py_reader *reader, const ist_py_call *call);
/* A way as the function being read sees it: one that begins with another function's parameter begins with what callers
 * pass. */
uint32_t ist_py_here(const ist_py_reader *reader, uint32_t origin);
uint32_t ist_py_downloaded(ist_py_reader *reader, uint32_t line);
/* The call of a function of the project; the first `skip` parameters are not given. */
ist_src_value ist_py_call_function(ist_py_reader *reader, const ist_py_call *call, uint32_t number, uint32_t skip);
/* An instance of a class of the project. */
ist_src_value ist_py_construct(ist_py_reader *reader, const ist_py_call *call, uint32_t number);
/* The attribute or field of whatever has the class `number` holds what any line puts there. */
void ist_py_keep(ist_py_reader *reader, uint32_t number, const char *name, size_t length, uint32_t line,
                 ist_src_value value);
/* What has been seen there so far, and this. */
void ist_py_join(ist_src_value *kept, ist_src_value value);
/* What was kept; false: nothing. */
bool ist_py_kept(const ist_py_reader *reader, uint32_t number, const char *name, size_t length, ist_src_value *value);
/* What a name that is not bound here means to the file: a function, class or variable of the project. */
ist_src_value ist_py_global(ist_py_reader *reader, uint32_t name);
/* The same for "package.module.name". */
ist_src_value ist_py_global_path(const ist_py_reader *reader, const char *path);
/* The record of the dictionary at a token. */
uint32_t ist_py_record(ist_py_reader *reader, const ist_py_token *token);

/* ---- values ---- */

static inline bool ist_py_is_sure(ist_src_value v) {
    return v.kind == IST_PY_TENSOR && (v.flags & IST_PY_SURE);
}
static inline ist_src_value ist_py_of(unsigned kind, unsigned flags) {
    return (ist_src_value){.kind = (uint8_t)kind, .flags = (uint8_t)flags};
}
static inline bool ist_py_is_text(ist_src_value v) {
    return v.kind != IST_PY_TENSOR && (v.flags & IST_PY_STRING_);
}
/* None or an empty container, which something else may take the place of. */
static inline bool ist_py_is_nothing(ist_src_value v) {
    return v.kind == IST_PY_HOST && (v.flags & IST_PY_MADE);
}
/* Whether anything is known of it. */
static inline bool ist_py_is_known(ist_src_value v) {
    return v.kind || v.of || v.origin;
}
static inline bool ist_py_is_instance(ist_src_value v) {
    return v.of && v.kind != IST_PY_FUNCTION && v.kind != IST_PY_CLASS;
}
/* Either of two. */
ist_src_value ist_py_either(ist_src_value a, ist_src_value b);
/* The result of an operation on both. */
ist_src_value ist_py_combine(ist_src_value a, ist_src_value b);

/* ---- source_py_scopes.c ---- */

void ist_py_statement(ist_py_reader *reader, const ist_py_lexer *line);
/* "import" or "from" at `at`. source_py_imports.c */
void ist_py_import_statement(ist_py_reader *reader, uint32_t at, uint32_t end);
/* Behind the last line of a file. */
void ist_py_end_file(ist_py_reader *reader);

/* ---- source_py_names.c ---- */

/* Remembers what holds now, to be gone back to behind the block. */
void ist_py_enter_block(ist_py_reader *reader, uint32_t indent, ist_py_block_kind kind);
/* Blocks that a line with this indent is behind. */
void ist_py_leave_blocks(ist_py_reader *reader, uint32_t indent);
/* Takes back bindings from number `count` on. */
void ist_py_unbind(ist_py_reader *reader, size_t count);
/* A name goes back to what it held before a condition told more, unless something else was assigned. */
void ist_py_widen(ist_py_reader *reader, const ist_py_narrowing *narrowed);
/* The name is no tensor from here on; what it holds may be one. */
void ist_py_exclude(ist_py_reader *reader, const ist_py_narrowing *tensor);
ist_src_value ist_py_lookup(const ist_py_reader *reader, uint32_t name);
void ist_py_bind(ist_py_reader *reader, uint32_t name, ist_src_value value);
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
