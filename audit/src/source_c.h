/* The reading of one C-like file: where a token stands and what its calls say. Private to source_c*.c.
 *
 * No syntax tree: parentheses and braces are stacks of fixed depth (deeper ones are counted and not looked into), a
 * call is judged when its parenthesis closes. Three passes: the first learns which functions read into or write from
 * their parameters, the second who calls them with what, the third finds the chains. */
#ifndef IST_AUDIT_SOURCE_C_H
#define IST_AUDIT_SOURCE_C_H

#include "audit/source_c_lex.h"
#include "audit/source_c_rules.h"

enum { IST_C_PARENS = 128, IST_C_BRACES = 256, IST_C_LOOPS = 64, IST_C_ARGS = 12 };

enum {
    IST_C_TRUE = 1,
    IST_C_FALSE = 2,
    IST_C_HOST_POINTER = 4,
    IST_C_FOR_READ = 8,
    IST_C_FOR_WRITE = 16,
    IST_C_STATUS_ASKED = 32,
    IST_C_SIZEOF = 64,   /* sizeof a scalar */
    IST_C_COMPLEX = 128, /* more than one operand */
    IST_C_UP = 256,
    IST_C_DOWN = 512,
    IST_C_ON_DEVICE = 1024,
    IST_C_MEMBER = 2048, /* its name is that of a member */
    IST_C_ITERATOR = 4096
};

typedef struct ist_c_arg {
    uint32_t base; /* the name that it is about: "host" in "(void *)&job->host[4]" */
    uint16_t flags;
    uint8_t tokens; /* up to 255 */
    bool closed;    /* behind "+" or "[": names no longer count */
} ist_c_arg;

typedef enum ist_c_paren_kind { IST_C_GROUP, IST_C_CALL, IST_C_HEADER, IST_C_CONDITION, IST_C_SIZE } ist_c_paren_kind;

typedef struct ist_c_paren {
    uint8_t kind;
    const ist_c_rule *rule;
    uint32_t callee, line, target; /* target: the name that the result goes to */
    uint32_t arg_count;
    ist_c_arg args[IST_C_ARGS]; /* a group has one */
} ist_c_paren;

typedef struct ist_c_brace {
    uint32_t function, loop, branch; /* to go back to */
    bool in_function, of_loop;
} ist_c_brace;

/* A loop whose body is one statement, or has not begun. */
typedef struct ist_c_loop {
    uint32_t outer, braces, parens;
    bool condition; /* not closed yet */
    bool begun;
} ist_c_loop;

typedef struct ist_c_reader {
    ist_src_unit *u;
    ist_c_lexer lexer;
    ist_c_token token, next, last, before_last;
    uint32_t token_name, last_name; /* of NAME tokens */
    bool opencl, final;
    uint32_t function, loop;
    uint32_t branch, branches; /* block; blocks so far */
    uint32_t header;           /* name of what may be a function's head */
    bool header_done, header_init;
    ist_c_arg header_args[IST_C_ARGS];
    uint32_t header_arg_count;
    uint32_t target, indexed; /* of the assignment; of "[" */
    bool in_return;
    uint8_t declared; /* ist_c_type of the declaration */
    uint32_t paren_count, brace_count, loop_count, lost_parens, lost_braces;
    ist_c_paren parens[IST_C_PARENS];
    ist_c_brace braces[IST_C_BRACES];
    ist_c_loop loops[IST_C_LOOPS];
} ist_c_reader;

/* The call whose parenthesis closes. */
void ist_c_end_call(ist_c_reader *reader, const ist_c_paren *call);
/* What a token adds to the argument that it is part of. */
void ist_c_note_token(ist_c_reader *reader);
/* The rule for a name in front of "(", by what is in front of the name; NULL: none. */
const ist_c_rule *ist_c_rule_here(const ist_c_reader *reader);
/* Assignments and uses that change what a name is known to hold. */
void ist_c_assign(ist_c_reader *reader);
void ist_c_return(ist_c_reader *reader, uint32_t name);

#endif
