/* What both analysers keep about a file, and the words that tell what a function is for. */
#include "audit/source_unit.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_BUCKETS = 1 << 10,
    MOST_BUCKETS = 1 << 18,
    MOST_NAMES = 1 << 20,  /* later ones are not told apart */
    MOST_HITS = 1 << 20,   /* later ones are counted */
    MOST_RECORDS = 1 << 20 /* functions, loops, calls, chains */
};

/* ---- words ---- */

static const char frame_words[] =
    " forward infer inference predict prediction detect detection process step frame render segment track encode decode"
    " preprocess postprocess generate update call execute handle callback tick match draw classify embed extract ";
static const char setup_words[] =
    " init setup create load build open configure make register parse close destroy free release teardown export"
    " install prepare reset new warmup cleanup shutdown convert ";
static const char driver_words[] =
    " main run loop video videos frames images batches all dataset evaluate eval test bench benchmark demo serve worker"
    " play stream validate val ";
static const char over_frames_words[] = " video videos frames images batches dataset evaluate validate demo stream ";
static const char evaluation_words[] =
    " evaluate eval validate validation validator test inference infer predict metrics ";
static const char training_words[] = " train training trainer loss losses backward optimizer optim criterion fit epoch "
                                     "grad gradient gradients ema denoising"
                                     " solver finetune pretrain augment ";
static const char host_data_words[] = " data dataset datasets dataloader transforms augmentation collate ";

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}
static bool is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

/* Length of the word at `text`: capitals that follow small letters begin another, so do their last of several. */
static size_t word_length(const char *text, size_t length) {
    size_t n = 0;
    while (n < length && is_upper(text[n])) n++;
    if (n > 1 && n < length && is_lower(text[n]))
        n--;
    else
        while (n < length && is_lower(text[n])) n++;
    return n;
}

static bool is_listed(const char *word, size_t length, const char *list) {
    char key[24];
    if (!length || length + 3 > sizeof key) return false;
    key[0] = ' ';
    for (size_t i = 0; i < length; i++) key[i + 1] = is_upper(word[i]) ? (char)(word[i] - 'A' + 'a') : word[i];
    key[length + 1] = ' ';
    key[length + 2] = '\0';
    return strstr(list, key) != NULL;
}

bool ist_src_has_word(const char *text, size_t length, const char *list) {
    for (size_t i = 0; i < length;) {
        size_t n = word_length(text + i, length - i);
        if (is_listed(text + i, n, list)) return true;
        i += n ? n : 1;
    }
    return false;
}

/* The first word that tells decides; words for many frames go before all. */
static ist_src_role role_of(const char *text, size_t length) {
    if (ist_src_has_word(text, length, driver_words)) return IST_SRC_DRIVER;
    for (size_t i = 0; i < length;) {
        size_t n = word_length(text + i, length - i);
        if (is_listed(text + i, n, setup_words)) return IST_SRC_SETUP;
        if (is_listed(text + i, n, frame_words)) return IST_SRC_FRAME;
        i += n ? n : 1;
    }
    return IST_SRC_PLAIN;
}

/* ---- life ---- */

bool ist_src_unit_init(ist_src_unit *unit, size_t length) {
    uint32_t buckets = LEAST_BUCKETS;
    while (buckets < MOST_BUCKETS && buckets < length / 32) buckets *= 2;
    *unit = (ist_src_unit){.bucket_count = buckets,
                           .buckets = calloc(buckets, sizeof *unit->buckets),
                           .hop_buckets = calloc(buckets, sizeof *unit->hop_buckets)};
    if (unit->buckets && unit->hop_buckets && ist_src_intern(unit, "", 0) == 0 && !unit->failed) return true;
    ist_src_unit_free(unit);
    return false;
}

bool ist_src_add_file(ist_src_unit *unit, const ist_src_file *file) {
    if (!ist_grow((void **)&unit->files, &unit->file_cap, unit->file_count + 1, sizeof *unit->files)) return false;
    ist_src_file *f = &unit->files[unit->file_count++];
    *f = *file;
    f->training = ist_src_has_word(f->inner, strlen(f->inner), training_words);
    f->host_data = ist_src_has_word(f->inner, strlen(f->inner), host_data_words);
    unit->file = (uint32_t)unit->file_count - 1;
    unit->host_data = f->host_data;
    return true;
}

void ist_src_unit_free(ist_src_unit *unit) {
    free(unit->arena);
    free(unit->names);
    free(unit->buckets);
    free(unit->files);
    free(unit->hops);
    free(unit->hop_buckets);
    free(unit->chains);
    free(unit->functions);
    free(unit->loops);
    free(unit->calls);
    free(unit->hits);
    *unit = (ist_src_unit){0};
}

void ist_src_begin_pass(ist_src_unit *unit) {
    unit->functions_seen = unit->loop_count = unit->call_count = unit->hit_count = unit->chain_count = 0;
    unit->dropped = unit->lines = 0;
}

/* ---- names ---- */

static uint32_t hash_of(const char *text, size_t length) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

static uint32_t find_name(const ist_src_unit *unit, const char *text, size_t length, uint32_t hash) {
    for (uint32_t k = unit->buckets[hash % unit->bucket_count]; k; k = unit->names[k - 1].next) {
        const ist_src_name *n = &unit->names[k - 1];
        if (n->hash == hash && n->length == length && !memcmp(unit->arena + n->text, text, length)) return k;
    }
    return 0;
}

uint32_t ist_src_intern(ist_src_unit *unit, const char *text, size_t length) {
    uint32_t hash = hash_of(text, length), found = find_name(unit, text, length, hash);
    if (found) return found - 1;
    if (unit->name_count >= MOST_NAMES || length > 4096) return 0;
    if (!ist_grow((void **)&unit->arena, &unit->arena_cap, unit->arena_used + length + 1, 1) ||
        !ist_grow((void **)&unit->names, &unit->name_cap, unit->name_count + 1, sizeof *unit->names)) {
        unit->failed = true;
        return 0;
    }
    memcpy(unit->arena + unit->arena_used, text, length);
    unit->arena[unit->arena_used + length] = '\0';
    unit->names[unit->name_count] = (ist_src_name){.text = unit->arena_used,
                                                   .hash = hash,
                                                   .next = unit->buckets[hash % unit->bucket_count],
                                                   .length = (uint32_t)length};
    unit->arena_used += length + 1;
    unit->buckets[hash % unit->bucket_count] = (uint32_t)++unit->name_count;
    return (uint32_t)unit->name_count - 1;
}

uint32_t ist_src_find_name(const ist_src_unit *unit, const char *text, size_t length) {
    uint32_t found = find_name(unit, text, length, hash_of(text, length));
    return found ? found - 1 : 0;
}

bool ist_src_is_hinted(const ist_src_unit *unit, const char *text, size_t length) {
    uint32_t found = find_name(unit, text, length, hash_of(text, length));
    return found && unit->names[found - 1].hint;
}

uint32_t ist_src_join(ist_src_unit *unit, uint32_t first, const char *second, size_t length) {
    char text[512];
    size_t n = unit->names[first].length;
    if (n + 1 + length > sizeof text) return 0;
    memcpy(text, ist_src_text(unit, first), n);
    text[n] = '.';
    memcpy(text + n + 1, second, length);
    return ist_src_intern(unit, text, n + 1 + length);
}

/* ---- records ---- */

uint32_t ist_src_function_begin(ist_src_unit *unit, uint32_t name, uint32_t owner) {
    uint32_t number = (uint32_t)++unit->functions_seen;
    if (number > MOST_RECORDS) return 0;
    if (number > unit->function_count) {
        if (!ist_grow((void **)&unit->functions, &unit->function_cap, number, sizeof *unit->functions)) {
            unit->failed = true;
            return 0;
        }
        ist_src_function *f = &unit->functions[number - 1];
        const ist_src_name *n = &unit->names[name], *o = &unit->names[owner];
        const char *text = unit->arena + n->text, *class_text = unit->arena + o->text;
        *f = (ist_src_function){
            .file = unit->file, .name = name, .owner = owner, .role = (uint8_t)role_of(text, n->length)};
        f->constructor = !strcmp(text, "__init__");
        f->evaluates = ist_src_has_word(text, n->length, evaluation_words) ||
                       ist_src_has_word(class_text, o->length, evaluation_words);
        f->over_frames = ist_src_has_word(text, n->length, over_frames_words);
        f->training = ist_src_has_word(text, n->length, training_words) ||
                      ist_src_has_word(class_text, o->length, training_words);
        unit->function_count = number;
    }
    unit->names[name].function = number;
    return number;
}

uint32_t ist_src_loop_begin(ist_src_unit *unit, uint32_t parent, uint32_t function) {
    if (unit->loop_count >= MOST_RECORDS) return parent;
    if (!ist_grow((void **)&unit->loops, &unit->loop_cap, unit->loop_count + 1, sizeof *unit->loops)) {
        unit->failed = true;
        return parent;
    }
    unit->loops[unit->loop_count++] = (ist_src_loop){.parent = parent, .function = function};
    return (uint32_t)unit->loop_count;
}

void ist_src_add_call(ist_src_unit *unit, uint32_t caller, uint32_t loop, uint32_t callee) {
    if (!callee || unit->call_count >= MOST_RECORDS) return;
    if (!ist_grow((void **)&unit->calls, &unit->call_cap, unit->call_count + 1, sizeof *unit->calls))
        unit->failed = true;
    else
        unit->calls[unit->call_count++] = (ist_src_call){caller, loop, callee};
}

uint32_t ist_src_add_hit(ist_src_unit *unit, const ist_src_hit *hit) {
    if (unit->hit_count >= MOST_HITS) {
        unit->dropped += hit->op < IST_SRC_LAUNCH;
        return 0;
    }
    if (!ist_grow((void **)&unit->hits, &unit->hit_cap, unit->hit_count + 1, sizeof *unit->hits)) {
        unit->failed = true;
        return 0;
    }
    unit->hits[unit->hit_count] = *hit;
    unit->hits[unit->hit_count++].file = unit->file;
    return (uint32_t)unit->hit_count;
}
