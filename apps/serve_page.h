/* The page of `isthmus segment --serve`, apps/serve.html. */
#ifndef SERVE_PAGE_H
#define SERVE_PAGE_H

#include "base/status.h"

/* The page, as a static string. */
const char *serve_page(void);

/* The Content-Security-Policy under which nothing but what is written in the page runs. */
ist_status serve_page_policy(char *policy, size_t size, ist_error *err);

#endif
