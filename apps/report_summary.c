/* What a report says above its pictures: counts, scores, classes, times, transfers, failures, options. */
#include "report.h"

#include "percentile.h"

#include <math.h>
#include <string.h>

/* ---- text ---- */

/* Code points that are invisible, break lines or turn the direction of what follows them. */
static bool is_treacherous(unsigned c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
}

/* The code point at `p` of valid UTF-8, its length in *n. */
static unsigned code_point(const char *p, size_t *n) {
    const unsigned char *u = (const unsigned char *)p;
    *n = u[0] < 0x80 ? 1 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    unsigned c = *n == 1 ? u[0] : u[0] & (0xFFu >> (*n + 1));
    for (size_t i = 1; i < *n; i++) c = c << 6 | (u[i] & 0x3F);
    return c;
}

static const char *entity_of(unsigned c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return is_treacherous(c) ? "\xEF\xBF\xBD" : NULL; /* U+FFFD */
    }
}

void report_put_text(ist_text *out, const char *text) {
    ist_text valid = {0};
    ist_text_utf8(&valid, text);
    size_t n;
    for (const char *p = valid.data; p && *p; p += n) {
        const char *entity = entity_of(code_point(p, &n));
        if (entity)
            ist_text_put(out, entity);
        else
            ist_text_add(out, p, n);
    }
    out->failed |= valid.failed;
    ist_text_free(&valid);
}

static void put_number(ist_text *out, double value) {
    const double size = fabs(value);
    if (size >= 1e15)
        ist_text_printf(out, "%.3g", value);
    else if (value != (double)(long long)value)
        ist_text_printf(out, size < 10 ? "%.3f" : size < 1000 ? "%.1f" : "%.0f", value);
    else
        ist_text_printf(out, "%lld", (long long)value);
}

static void put_count(ist_text *out, size_t n, const char *one, const char *many) {
    ist_text_printf(out, "%zu %s", n, ist_plural(n, one, many));
}

/* ---- sections ---- */

static void put_counts(ist_text *out, const report *r) {
    ist_text_put(out, "<h1>isthmus report of <bdi>");
    report_put_text(out, r->folder);
    ist_text_put(out, "</bdi></h1>\n<p class=\"lead\">");
    put_count(out, r->images, "image", "images");
    ist_text_put(out, ", ");
    put_count(out, r->objects, "object", "objects");
    ist_text_put(out, " of ");
    put_count(out, r->class_count, "class", "classes");
    ist_text_put(out, r->failed ? ", <b class=\"bad\">" : ", ");
    put_count(out, r->failed, "failure", "failures");
    ist_text_put(out, r->failed ? "</b>.</p>\n" : ".</p>\n");
    if (r->dropped)
        ist_text_printf(out, "<p>%zu detections did not fit --max-objects and are not among them.</p>\n", r->dropped);
    if (r->objects && !r->masks) ist_text_put(out, "<p>The run made no masks.</p>\n");
}

static void put_bar(ist_text *out, int i, size_t count, size_t most) {
    const double width = 600.0 / REPORT_BINS, height = most ? 140.0 * (double)count / (double)most : 0;
    ist_text_printf(
        out, "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\"><title>%.2f to %.2f: %zu</title></rect>\n",
        width * i + 1, 150 - height, width - 2, height, (double)i / REPORT_BINS, (double)(i + 1) / REPORT_BINS, count);
}

static void put_scores(ist_text *out, const report *r) {
    size_t most = 0;
    for (int i = 0; i < REPORT_BINS; i++)
        if (r->bins[i] > most) most = r->bins[i];
    ist_text_put(out, "<section><h2>Scores</h2>\n");
    if (!r->objects) {
        ist_text_put(out, "<p>There are no objects.</p></section>\n");
        return;
    }
    ist_text_printf(out,
                    "<svg class=\"chart\" viewBox=\"0 0 600 172\" role=\"img\" aria-label=\"Histogram of scores\">"
                    "<text x=\"0\" y=\"10\">%zu</text><line x1=\"0\" y1=\"150\" x2=\"600\" y2=\"150\"/>\n",
                    most);
    for (int i = 0; i < REPORT_BINS; i++) put_bar(out, i, r->bins[i], most);
    for (int i = 0; i <= 10; i += 2)
        ist_text_printf(out, "<text x=\"%d\" y=\"167\" text-anchor=\"%s\">%.1f</text>\n", 60 * i,
                        !i        ? "start"
                        : i == 10 ? "end"
                                  : "middle",
                        i / 10.0);
    ist_text_put(out, "</svg>\n<details><summary>As a table</summary><table><tr><th>score<th>objects</tr>\n");
    for (int i = 0; i < REPORT_BINS; i++)
        ist_text_printf(out, "<tr><td>%.2f to %.2f<td>%zu</tr>\n", (double)i / REPORT_BINS,
                        (double)(i + 1) / REPORT_BINS, r->bins[i]);
    ist_text_put(out, "</table></details></section>\n");
}

static void put_classes(ist_text *out, const report *r) {
    size_t told = 0;
    if (!r->class_count) return;
    ist_text_put(out, "<section><h2>Classes</h2>\n<div class=\"scroll\"><table><tr><th>class<th>objects<th>mean "
                      "score<th>best score</tr>\n");
    for (size_t i = 0; i < r->class_count; i++) {
        const report_class *c = &r->classes[i];
        ist_text_put(out, "<tr><td><bdi>");
        report_put_text(out, c->name);
        ist_text_printf(out, "</bdi><td>%zu<td>%.3f<td>%.3f</tr>\n", c->count, c->sum / (double)c->count, c->best);
        told += c->count;
    }
    ist_text_put(out, "</table></div>\n");
    if (told < r->objects) ist_text_printf(out, "<p>%zu objects are of further classes.</p>\n", r->objects - told);
    ist_text_put(out, "</section>\n");
}

static void put_percentiles(ist_text *out, const report_values *v, const char *name, const double *ranks, int count) {
    ist_text_printf(out, "<tr><td>%s", name);
    for (int i = 0; i < count; i++) {
        ist_text_put(out, "<td>");
        put_number(out, percentile(v->list, v->count, ranks[i]));
    }
    ist_text_put(out, "</tr>\n");
}

static void put_times(ist_text *out, const report *r) {
    static const double ranks[] = {50, 90, 99, 100};
    if (!r->numbers[REPORT_TOTAL].count) return;
    ist_text_put(out, "<section><h2>Milliseconds per image</h2>\n<table><tr><th><th>p50<th>p90<th>p99<th>most</tr>\n");
    for (int n = 0; n < REPORT_FIRST_TRANSFER; n++)
        put_percentiles(out, &r->numbers[n], report_number_name(n), ranks, 4);
    ist_text_put(out, "</table>\n<p>Submit, wait and total are those of the image's batch; the "
                      "first of a run may have built kernels.</p></section>\n");
}

static void put_transfers(ist_text *out, const report *r) {
    static const char *const names[] = {"writes", "reads", "waits", "bytes to the device", "bytes back"};
    static const double ranks[] = {0, 50, 100};
    if (!r->numbers[REPORT_WRITES].count) return;
    ist_text_put(out,
                 "<section><h2>Transfers of an image's batch</h2>\n<table><tr><th><th>least<th>p50<th>most</tr>\n");
    for (int n = REPORT_FIRST_TRANSFER; n < REPORT_NUMBERS; n++)
        put_percentiles(out, &r->numbers[n], names[n - REPORT_FIRST_TRANSFER], ranks, 3);
    ist_text_put(out, "</table></section>\n");
}

/* A sentence names its file first, too. */
static void put_failure(ist_text *out, const char *file, const char *sentence) {
    size_t n = strlen(file);
    if (!strncmp(sentence, file, n) && !strncmp(sentence + n, ": ", 2)) sentence += n + 2;
    ist_text_put(out, "<li><bdi>");
    report_put_text(out, file);
    ist_text_put(out, "</bdi>: <bdi>");
    report_put_text(out, sentence);
    ist_text_put(out, "</bdi></li>\n");
}

static void put_failures(ist_text *out, const report *r) {
    size_t i;
    json_t *line;
    if (!r->failed) return;
    ist_text_put(out, "<section><h2>Failures</h2>\n<ul>\n");
    json_array_foreach(r->failures, i, line) put_failure(out, json_string_value(json_object_get(line, "file")),
                                                         json_string_value(json_object_get(line, "error")));
    ist_text_put(out, "</ul>\n");
    if (r->failed > json_array_size(r->failures))
        ist_text_printf(out, "<p>%zu more are in failed.ndjson.</p>\n", r->failed - json_array_size(r->failures));
    ist_text_put(out, "</section>\n");
}

static void put_options(ist_text *out, const report *r) {
    const char *name;
    json_t *value;
    if (!json_object_size(r->options)) return;
    ist_text_put(out, "<section><h2>Options</h2>\n<details><summary>What decides the results</summary><table>\n");
    json_object_foreach(r->options, name, value) {
        if (!json_is_string(value)) continue;
        ist_text_put(out, "<tr><td><bdi>");
        report_put_text(out, name);
        ist_text_put(out, "</bdi><td class=\"left\"><bdi>");
        report_put_text(out, json_string_value(value));
        ist_text_put(out, "</bdi></tr>\n");
    }
    ist_text_put(out, "</table></details></section>\n");
}

void report_put_summary(ist_text *out, const report *r) {
    put_counts(out, r);
    ist_text_put(out, "<div class=\"columns\">\n");
    put_scores(out, r);
    put_classes(out, r);
    put_times(out, r);
    put_transfers(out, r);
    put_options(out, r);
    ist_text_put(out, "</div>\n");
    put_failures(out, r);
}
