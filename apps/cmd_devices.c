/* isthmus devices: the flat list of OpenCL devices that --device chooses from, each opened and probed, so that what is
 * said about a device has been seen on it. */
#include "cli.h"

#include "device/device.h"
#include "io/text.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const cli_option options[] = {
    {"json", 256, NULL, "print a JSON array instead of a table"},
    {NULL, 0, NULL, NULL},
};

static const char *type_name(ist_device_type type) {
    return type == IST_DEVICE_CPU ? "cpu" : type == IST_DEVICE_GPU ? "gpu" : "other";
}

static void put_string(ist_text *out, const char *key, const char *value) {
    ist_text_printf(out, ",\"%s\":", key);
    ist_text_json_string(out, value);
}

/* What the probes found; `problem` is set when the device does not open. */
typedef struct probed {
    unsigned caps; /* ist_cap bits */
    char problem[500];
} probed;

static probed probe(const ist_device_info *info) {
    probed p = {0};
    char spec[16];
    ist_device *device = NULL;
    ist_error err;
    snprintf(spec, sizeof spec, "%d", info->index);
    ist_device_options open = {.spec = spec};
    if (ist_device_open(&open, &device, &err))
        snprintf(p.problem, sizeof p.problem, "%s", err.text);
    else
        p.caps = ist_device_caps(device);
    ist_device_close(&device);
    return p;
}

static void put_capabilities(ist_text *out, const probed *p) {
    const char *comma = "";
    ist_text_put(out, ",\"capabilities\":[");
    for (int bit = 0; bit < IST_CAP_COUNT; bit++) {
        if (!(p->caps >> bit & 1)) continue;
        ist_text_put(out, comma);
        ist_text_json_string(out, ist_cap_name(bit));
        comma = ",";
    }
    ist_text_put(out, "]");
    if (*p->problem) put_string(out, "problem", p->problem);
}

static void put_device(ist_text *out, const ist_device_info *d) {
    probed p = probe(d);
    ist_text_printf(out, "{\"index\":%d,\"platform\":%d,\"device\":%d,\"type\":\"%s\",\"default\":%s", d->index,
                    d->platform, d->device, type_name(d->type), d->is_default ? "true" : "false");
    put_string(out, "name", d->name);
    put_string(out, "vendor", d->vendor);
    put_string(out, "platform_name", d->platform_name);
    put_string(out, "driver", d->driver);
    put_string(out, "version", d->version);
    put_string(out, "uuid", d->uuid);
    ist_text_printf(out, ",\"compute_units\":%d,\"global_bytes\":%llu,\"max_alloc_bytes\":%llu", d->compute_units,
                    (unsigned long long)d->global_bytes, (unsigned long long)d->max_alloc_bytes);
    put_capabilities(out, &p);
    ist_text_put(out, "}");
}

static int print_json(const ist_device_info *list, int count) {
    ist_text out = {0};
    ist_text_put(&out, "[");
    for (int i = 0; i < count; i++) {
        ist_text_put(&out, i ? ",\n" : "\n");
        put_device(&out, &list[i]);
    }
    ist_text_put(&out, count ? "\n]\n" : "]\n");
    ist_error err;
    int code = CLI_SUCCESS;
    if (ist_text_status(&out, &err))
        code = cli_fail(CLI_FAILED, "%s", err.text);
    else
        fputs(out.data, stdout);
    ist_text_free(&out);
    return code;
}

static void print_capabilities(const ist_device_info *d) {
    probed p = probe(d);
    printf("%10s", "");
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        if (p.caps >> bit & 1) printf(" %s", ist_cap_name(bit));
    if (*p.problem) printf(" unusable: %s", cli_printable(p.problem));
    printf("\n");
}

static void print_table(const ist_device_info *list, int count) {
    printf("  %-5s %-4s %5s %9s  %s\n", "INDEX", "TYPE", "UNITS", "MEMORY", "NAME");
    for (int i = 0; i < count; i++) {
        const ist_device_info *d = &list[i];
        printf("%c %-5d %-4s %5d %5.1f GiB  %s (%s, driver %s)\n", d->is_default ? '*' : ' ', d->index,
               type_name(d->type), d->compute_units, (double)d->global_bytes / (1 << 30), d->name, d->platform_name,
               d->driver);
        print_capabilities(d);
    }
    printf("* is used when --device and ISTHMUS_DEVICE say nothing\n");
}

int cmd_devices(int argc, char **argv) {
    bool json = false;
    int id, code = CLI_SUCCESS, count = 0;
    const char *value;
    while ((id = cli_next("devices", options, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) return code;
        json = true;
    }
    if (optind < argc) return cli_usage("devices", "unexpected argument '%s'", argv[optind]);
    ist_error err;
    if (ist_devices(NULL, 0, &count, &err)) return cli_fail(cli_exit_code(err.code), "%s", err.text);
    ist_device_info *list = calloc(count > 0 ? (size_t)count : 1, sizeof *list);
    if (!list) return cli_fail(CLI_FAILED, "out of memory for %d devices", count);
    int capacity = count;
    ist_status status = ist_devices(list, capacity, &count, &err);
    if (count > capacity) count = capacity;
    if (status)
        code = cli_fail(cli_exit_code(status), "%s", err.text);
    else if (json)
        code = print_json(list, count);
    else if (count)
        print_table(list, count);
    free(list);
    if (!code && !count)
        code = cli_fail(CLI_NO_DEVICE, "there is no OpenCL device; a CPU becomes one with PoCL "
                                       "(Debian, Ubuntu: apt install pocl-opencl-icd), a GPU with its vendor's driver");
    return code;
}
