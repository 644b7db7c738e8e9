/* --tile WxH[+OVERLAP]; --batch is then tiles of an image. */
#include "predict.h"

#include <stdio.h>
#include <string.h>

int predict_parse_tile(const char *text, predict_options *o) {
    enum { MOST = 65536 };
    char sides[2][16], end;
    int overlap = -1, n = 0;
    ist_tiles t = ist_tiles_default();
    bool good = sscanf(text, "%15[0-9]x%15[0-9]%n", sides[0], sides[1], &n) == 2 &&
                cli_parse_int(sides[0], 32, MOST, &t.width) && cli_parse_int(sides[1], 32, MOST, &t.height);
    int most = (t.width < t.height ? t.width : t.height) / 2;
    if (good && text[n])
        good = sscanf(text + n, "+%15[0-9]%c", sides[0], &end) == 1 && cli_parse_int(sides[0], 0, most, &overlap);
    if (!good)
        return cli_usage(o->command,
                         "--tile: '%s' is not WxH or WxH+OVERLAP in pixels: sides from 32 to %d, and an overlap of at "
                         "most half of the shorter",
                         text, MOST);
    t.overlap = overlap;
    o->tiles = t;
    o->tiled = true;
    return CLI_SUCCESS;
}

int predict_check_tile(predict_options *o) {
    if (!o->tiled) return CLI_SUCCESS;
    if (o->no_detector) return cli_usage(o->command, "--tile and --no-detector exclude each other");
    o->tiles.batch = o->batch; /* images are submitted one by one */
    o->batch = 1;
    return CLI_SUCCESS;
}

void predict_print_tile(const predict_options *o, char *text, size_t size) {
    snprintf(text, size, o->tiled ? o->tiles.overlap < 0 ? "%dx%d" : "%dx%d+%d" : "off", o->tiles.width,
             o->tiles.height, o->tiles.overlap);
}
