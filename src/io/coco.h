/* COCO ground truth and results: what an evaluation needs of the two JSON files.
 *
 * Segmentations become run lengths as they are read, whatever form they have: polygons, runs, or the compressed text.
 * As in COCO's own reader, a result's area is that of its box when the first result has a box and that of its mask
 * otherwise, and a result without a mask among others that have one gets its box for a mask. */
#ifndef IST_IO_COCO_H
#define IST_IO_COCO_H

#include "io/labels.h"
#include "io/rle.h"

typedef struct ist_coco_image {
    int64_t id;
    char *file;        /* NULL: the file names none */
    int width, height; /* 0: not said */
    bool used;         /* evaluated; true for all when read */
} ist_coco_image;

typedef struct ist_coco_category {
    int64_t id;
    char *name; /* "" when it has none */
} ist_coco_category;

/* An annotation or a result. */
typedef struct ist_coco_object {
    size_t image, category; /* places in ist_coco.images and .categories */
    double box[4];          /* x, y, width, height */
    double area;
    double score;      /* results */
    bool crowd;        /* annotations: a region of many objects */
    bool no_id;        /* annotations: the id is 0, which COCO's evaluation takes for "no match" */
    int width, height; /* of the mask; 0: there is none */
    ist_rle mask;
} ist_coco_object;

typedef struct ist_coco_list {
    ist_coco_object *items; /* in file order */
    size_t count, capacity;
    bool masks;     /* results: some have masks, and then all; annotations: all have one */
    size_t skipped; /* results: left out, for their category is none of the annotations' */
} ist_coco_list;

typedef struct ist_coco {
    ist_coco_image *images; /* by id */
    size_t image_count, image_capacity;
    ist_coco_category *categories; /* by id */
    size_t category_count, category_capacity;
    ist_coco_list objects;
} ist_coco;

/* Annotations. Missing fields, wrong types, references to nothing and masks that do not fit are IST_E_INPUT. Without a
 * list of categories they are those that annotations name; without iscrowd an annotation is no crowd; without area it
 * is the mask's, else the box's. */
ist_status ist_coco_read(const char *path, ist_coco *coco, ist_error *err);
ist_status ist_coco_parse(const char *text, size_t length, const char *source, ist_coco *coco, ist_error *err);
void ist_coco_free(ist_coco *coco);

/* Results for these annotations. An image that the annotations lack is IST_E_INPUT. */
ist_status ist_coco_results_read(const char *path, const ist_coco *coco, ist_coco_list *results, ist_error *err);
ist_status ist_coco_results_parse(const char *text, size_t length, const char *source, const ist_coco *coco,
                                  ist_coco_list *results, ist_error *err);
void ist_coco_list_free(ist_coco_list *list);

/* Gives labels the category ids of these annotations: by name when any name is a category's, else by their own ids.
 * *missing: categories without a label. */
ist_status ist_coco_relabel(const ist_coco *coco, ist_labels *labels, size_t *missing, ist_error *err);

#endif
