/* The parts of `isthmus segment SOURCE... --serve HOST:PORT`: a page in the browser that asks for masks by clicks. One
 * thread does everything: it waits for requests and uses the engines, so that an engine is never used by two.
 *
 *     GET  /                  the page
 *     GET  /images            {"segmenter", "device", "points": most of a prompt, "images": [{"id", "name"}, ...]}
 *     GET  /images/N          image N (from 0) as RGB PNG: the pixels that the network sees
 *     POST /images/N/encode   makes its embedding, so that the first click finds it; {}
 *     POST /images/N/mask     a mask of the prompt {"points": [[x, y, label], ...], "box": [x0, y0, x1, y1]}
 *     POST /images/N/masks    three of them
 *     POST /images/N/everything  masks of everything
 *
 * Masks are {"ms", "masks": [{"score", "stability", "area", "bbox", "segmentation"}, ...]}, the last three as COCO has
 * them. What goes wrong is a status from 400 on and {"error": sentence}. */
#ifndef SERVE_H
#define SERVE_H

#include "predict.h"
#include "serve_page.h"

enum {
    SERVE_POINTS = 25,       /* most points of a prompt */
    SERVE_BODY = 256 * 1024, /* most bytes of a request's body */
    SERVE_CONNECTIONS = 32,  /* at one time; more of them wait */
    SERVE_IDLE = 15,         /* seconds after which a connection that says nothing is closed */
    SERVE_EMBEDDINGS = 8     /* images whose embeddings an engine keeps */
};

/* ---- serve_listen.c: the address ---- */

typedef struct serve_address {
    char host[256];  /* as it was given, without brackets */
    char shown[300]; /* the same for an address line: brackets around IPv6 */
    int port, socket;
    bool loopback; /* reached from this machine alone */
} serve_address;

/* Listens at "HOST:PORT", "[IPv6]:PORT", ":PORT" or "PORT" (the last two: 127.0.0.1); port 0 becomes a free one. 0, or
 * the exit code after a message. The socket is the caller's to close. */
int serve_listen(const char *text, serve_address *address);

/* ---- serve_engine.c: engines and embeddings ---- */

/* What masks there are is decided when an engine is opened, so each kind has one of its own; it is opened when
 * it is first asked. */
typedef enum serve_kind { SERVE_THREE_MASKS, SERVE_ONE_MASK, SERVE_ALL_MASKS, SERVE_KINDS } serve_kind;

typedef struct serve_embedding {
    ist_embedding *handle;
    size_t image; /* place in the list of sources */
    uint64_t used;
} serve_embedding;

typedef struct serve_engine {
    ist_engine *engine; /* NULL: not open */
    serve_embedding list[SERVE_EMBEDDINGS];
    int count;
} serve_engine;

typedef struct serve {
    predict_job *job; /* options and sources */
    serve_address address;
    serve_engine engines[SERVE_KINDS];
    uint64_t clock; /* counts uses of embeddings */
} serve;

/* Has the embedding of an image made unless it is there; the oldest makes room. After a failure of the device the
 * engine is closed, and the next call opens it again. */
ist_status serve_encode(serve *s, serve_kind kind, size_t image, ist_error *err);

/* The masks of a prompt, one or three, as a result of `engines[kind]`, to be released there. */
ist_status serve_ask(serve *s, serve_kind kind, size_t image, const ist_prompt *prompt, const ist_result **result,
                     ist_error *err);

/* The masks of everything, as a result of `engines[SERVE_ALL_MASKS]`. */
ist_status serve_everything(serve *s, size_t image, const ist_result **result, ist_error *err);

void serve_engines_close(serve *s);

/* ---- serve_answer.c: what is asked and answered ---- */

typedef struct serve_answer {
    unsigned status; /* of HTTP */
    const char *type;
    char *body; /* malloc'd */
    size_t size;
    const char *allow; /* with status 405: the method that is there */
} serve_answer;

/* Which of these a path and method mean; 404 or 405 with a sentence, else status 0 and no body. */
typedef struct serve_route {
    enum { SERVE_PAGE, SERVE_IMAGES, SERVE_IMAGE, SERVE_ENCODE, SERVE_MASK, SERVE_MASKS, SERVE_EVERYTHING } what;
    size_t image;
} serve_route;
serve_answer serve_find_route(const serve *s, const char *method, const char *path, serve_route *route);

serve_answer serve_respond(serve *s, const serve_route *route, const char *body, size_t size);

/* {"error": sentence} */
serve_answer serve_refuse(unsigned status, const char *fmt, ...) IST_PRINTF(2, 3);

/* ---- serve_http.c: connections ---- */

typedef struct serve_server serve_server;

/* Answers requests on the address's socket, which it closes at the end. */
ist_status serve_start(serve *s, serve_server **server, ist_error *err);
/* Waits for requests, half a second at most or until a signal, and answers those that are there. */
ist_status serve_wait(serve_server *server, ist_error *err);
void serve_stop(serve_server **server);

/* ---- serve.c ---- */

/* `isthmus segment --serve`, until an interrupt; sources are listed. The exit code. */
int serve_run(predict_job *job);

#endif
