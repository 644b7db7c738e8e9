/* Prompts for images, from JSON in either of two forms:
 *     {"a.png": [{"points": [[x, y, 1], [x, y, 0]], "box": [x0, y0, x1, y1], "mask": "low_res.npy"}, ...], ...}
 *         pixels of the image; label 1 in, 0 out; each prompt has points, a box or a mask, or any of them together
 *     COCO annotations: their boxes (targets.h)
 * A mask is a NumPy file of low-resolution logits (npy.h), named as seen from the folder of the JSON file, and read
 * when it is needed. */
#ifndef IST_IO_PROMPTS_H
#define IST_IO_PROMPTS_H

#include "io/name_map.h"
#include "base/status.h"

enum { IST_PROMPT_POINTS = 256 /* at most */ };

/* As in ist_prompt, but for its mask, which is the name of a file or NULL; all owned. */
typedef struct ist_prompt_entry {
    ist_point *points;
    size_t point_count, point_capacity;
    float box[4];
    bool boxed;
    char *mask;
} ist_prompt_entry;

typedef struct ist_prompt_list {
    ist_prompt_entry *items;
    size_t count, capacity;
} ist_prompt_list;

typedef struct ist_prompt_file {
    ist_name_map files; /* file name -> index in lists */
    ist_prompt_list *lists;
    size_t count, capacity;
} ist_prompt_file;

ist_status ist_prompt_file_read(const char *path, ist_prompt_file *prompts, ist_error *err);
/* Masks are looked for beside `source`. */
ist_status ist_prompt_file_parse(const char *text, size_t length, const char *source, ist_prompt_file *prompts,
                                 ist_error *err);
/* One prompt as it stands in such a file, alone; a mask, which would name a file, is IST_E_INPUT. */
ist_status ist_prompt_parse(const char *text, size_t length, const char *source, ist_prompt_entry *prompt,
                            ist_error *err);
void ist_prompt_entry_free(ist_prompt_entry *prompt);
void ist_prompt_file_free(ist_prompt_file *prompts);

/* Prompts of an image, looked up by its path as given, by its name, then by the last part of its path; NULL when the
 * file names none. */
const ist_prompt_list *ist_prompt_file_find(const ist_prompt_file *prompts, const char *path, const char *name);

#endif
