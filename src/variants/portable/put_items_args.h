/* What cl/portable/put_items takes by value. */
#ifndef IST_VARIANTS_PORTABLE_PUT_ITEMS_ARGS_H
#define IST_VARIANTS_PORTABLE_PUT_ITEMS_ARGS_H

typedef struct ist_put_items_args {
    int values, channels; /* of an item, of a pixel */
    int each, above;      /* items for a count; counts beyond which items are taken */
    int x_ld, x_c0;
    int into_ld, into_c0;
} ist_put_items_args;

#endif
