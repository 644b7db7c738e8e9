/* What the attention kernels take by value; a machine's may nest it in a struct of their own. */
#ifndef IST_VARIANTS_ATTENTION_ARGS_H
#define IST_VARIANTS_ATTENTION_ARGS_H

typedef struct ist_attention_args {
    int q_ld, k_ld, v_ld, out_ld; /* elements from a token to the next */
    int q_c0, k_c0, v_c0, out_c0; /* first channels */
    int queries, keys;            /* of an item */
    int mapped_q, mapped_kv;      /* whether queries, keys and values of item n are those of item map[n] */
    int counted;                  /* whether item n sees the first k_count[n] keys only */
    float scale;
} ist_attention_args;

#endif
