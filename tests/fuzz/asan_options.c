/* What every target runs with. The quarantine keeps freed memory from being used again; with its usual 256 MiB each run
 * of a target works in fresh pages, which cost several times what the run does. */
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "quarantine_size_mb=8:malloc_context_size=8";
}
