/* The flat device list over all platforms, and what a SPEC selects from it.
 *
 * A machine without platforms, or with platforms that have no device, is a short list and no error. Devices that are
 * switched off or cannot compile are left out. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "device/state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLATFORM_NOT_FOUND (-1001) /* cl_khr_icd: the loader found no platform */
#define DEVICE_UUID        0x106A  /* cl_khr_device_uuid: CL_DEVICE_UUID_KHR, 16 bytes */

/* Reads a string property, cut to `size`, leading blanks removed; empty when the device does not tell. */
static void device_string(cl_device_id id, cl_device_info what, char *out, size_t size) {
    char text[4096];
    size_t n = 0;
    out[0] = 0;
    if (clGetDeviceInfo(id, what, 0, NULL, &n) != CL_SUCCESS || n == 0 || n > sizeof text) return;
    if (clGetDeviceInfo(id, what, n, text, NULL) != CL_SUCCESS) return;
    text[n - 1] = 0;
    const char *s = text;
    while (isspace((unsigned char)*s)) s++;
    snprintf(out, size, "%.*s", (int)size - 1, s);
}

static bool has_extension(cl_device_id id, const char *name) {
    size_t n = 0, length = strlen(name);
    if (clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &n) != CL_SUCCESS || n == 0) return false;
    char *all = malloc(n);
    if (!all) return false;
    bool found = false;
    if (clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, n, all, NULL) == CL_SUCCESS) {
        all[n - 1] = 0;
        for (const char *p = all; !found && (p = strstr(p, name)); p += length)
            found = (p == all || p[-1] == ' ') && (p[length] == ' ' || p[length] == 0);
    }
    free(all);
    return found;
}

ist_status ist_device_query(cl_device_id id, ist_device_info *info, ist_error *err) {
    cl_device_type type = 0;
    cl_bool available = CL_FALSE, compiler = CL_FALSE;
    cl_uint units = 0;
    cl_ulong global = 0, max_alloc = 0;
    const struct {
        cl_device_info what;
        size_t size;
        void *value;
    } numbers[] = {
        {CL_DEVICE_TYPE, sizeof type, &type},
        {CL_DEVICE_AVAILABLE, sizeof available, &available},
        {CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler},
        {CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units},
        {CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global, &global},
        {CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof max_alloc, &max_alloc},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cl_int rc = clGetDeviceInfo(id, numbers[i].what, numbers[i].size, numbers[i].value, NULL);
        if (rc != CL_SUCCESS)
            return ist_fail_cl(err, rc, "clGetDeviceInfo", "property 0x%x", (unsigned)numbers[i].what);
    }
    *info = (ist_device_info){.compute_units = (int)units, .global_bytes = global, .max_alloc_bytes = max_alloc};
    info->type = type & CL_DEVICE_TYPE_CPU   ? IST_DEVICE_CPU
                 : type & CL_DEVICE_TYPE_GPU ? IST_DEVICE_GPU
                                             : IST_DEVICE_OTHER;
    device_string(id, CL_DEVICE_NAME, info->name, sizeof info->name);
    device_string(id, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    device_string(id, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    device_string(id, CL_DEVICE_VERSION, info->version, sizeof info->version);
    cl_platform_id platform = NULL;
    if (clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) == CL_SUCCESS) {
        char name[sizeof info->platform_name] = {0};
        if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL) == CL_SUCCESS)
            memcpy(info->platform_name, name, sizeof name);
    }
    unsigned char uuid[16];
    if (has_extension(id, "cl_khr_device_uuid") &&
        clGetDeviceInfo(id, DEVICE_UUID, sizeof uuid, uuid, NULL) == CL_SUCCESS)
        for (size_t i = 0; i < sizeof uuid; i++) snprintf(info->uuid + 2 * i, 3, "%02x", uuid[i]);
    if (!available || !compiler)
        return ist_fail(err, IST_E_UNSUPPORTED, "%s %s", info->name,
                        available ? "has no kernel compiler" : "is switched off");
    return IST_OK;
}

/* ---- enumeration ---- */

typedef struct flat_list {
    ist_device_info *list;
    cl_device_id *ids;
    int count;
} flat_list;

static ist_status append(flat_list *flat, cl_device_id id, int platform, int device, ist_error *err) {
    ist_device_info info;
    if (ist_device_query(id, &info, NULL) != IST_OK) return IST_OK;
    size_t n = (size_t)flat->count + 1;
    ist_device_info *list = realloc(flat->list, n * sizeof *list);
    if (list) flat->list = list;
    cl_device_id *ids = realloc(flat->ids, n * sizeof *ids);
    if (ids) flat->ids = ids;
    if (!list || !ids) return ist_fail(err, IST_E_MEMORY, "no memory for a list of %zu devices", n);
    info.index = flat->count;
    info.platform = platform;
    info.device = device;
    flat->list[flat->count] = info;
    flat->ids[flat->count++] = id;
    return IST_OK;
}

static ist_status append_platform(flat_list *flat, cl_platform_id platform, int number, ist_error *err) {
    cl_uint n = 0;
    cl_int rc = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (rc != CL_SUCCESS || n == 0) return IST_OK; /* a platform that has nothing to offer is not our failure */
    cl_device_id *ids = calloc(n, sizeof *ids);
    if (!ids) return ist_fail(err, IST_E_MEMORY, "no memory for %u devices", n);
    ist_status status = IST_OK;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, ids, NULL) == CL_SUCCESS)
        for (cl_uint i = 0; i < n && status == IST_OK; i++) status = append(flat, ids[i], number, (int)i, err);
    free(ids);
    return status;
}

ist_status ist_device_enumerate(ist_device_info **list, cl_device_id **ids, int *count, ist_error *err) {
    if (list) *list = NULL;
    if (ids) *ids = NULL;
    *count = 0;
    cl_uint n = 0;
    cl_int rc = clGetPlatformIDs(0, NULL, &n);
    if (rc == PLATFORM_NOT_FOUND || (rc == CL_SUCCESS && n == 0)) return IST_OK;
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetPlatformIDs", "listing platforms");
    cl_platform_id *platforms = calloc(n, sizeof *platforms);
    if (!platforms) return ist_fail(err, IST_E_MEMORY, "no memory for %u platforms", n);
    ist_status status = IST_OK;
    rc = clGetPlatformIDs(n, platforms, NULL);
    if (rc != CL_SUCCESS) status = ist_fail_cl(err, rc, "clGetPlatformIDs", "listing %u platforms", n);
    flat_list flat = {0};
    for (cl_uint p = 0; p < n && status == IST_OK; p++) status = append_platform(&flat, platforms[p], (int)p, err);
    free(platforms);
    int chosen;
    if (status == IST_OK && flat.count &&
        (ist_device_select(flat.list, flat.count, getenv("ISTHMUS_DEVICE"), &chosen, NULL) == IST_OK ||
         ist_device_select(flat.list, flat.count, NULL, &chosen, NULL) == IST_OK))
        flat.list[chosen].is_default = 1;
    if (status != IST_OK || !list) free(flat.list);
    if (status != IST_OK || !ids) free(flat.ids);
    if (status != IST_OK) return status;
    if (list) *list = flat.list;
    if (ids) *ids = flat.ids;
    *count = flat.count;
    return IST_OK;
}

ist_status ist_device_list(ist_device_info **list, int *count, ist_error *err) {
    return ist_device_enumerate(list, NULL, count, err);
}

/* ---- selection ---- */

static int first_of_type(const ist_device_info *list, int count, ist_device_type type) {
    for (int i = 0; i < count; i++)
        if (list[i].type == type) return i;
    return -1;
}

static bool contains(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, n)) return true;
    return false;
}

/* "uuid:" accepts the digits with or without dashes, and a leading part of them. */
static bool uuid_matches(const char *uuid, const char *spec) {
    if (!*uuid || !*spec) return false;
    for (; *spec; spec++) {
        if (*spec == '-') continue;
        if (tolower((unsigned char)*spec) != tolower((unsigned char)*uuid++)) return false;
    }
    return true;
}

/* Position that `spec` selects, or -1. A number of three or more digits that is no index may be part of a name
 * ("5090"); a shorter one is an index and nothing else. */
static int find(const ist_device_info *list, int count, const char *spec) {
    if (!spec || !*spec) {
        int i = first_of_type(list, count, IST_DEVICE_GPU);
        if (i < 0) i = first_of_type(list, count, IST_DEVICE_CPU);
        return i < 0 && count > 0 ? 0 : i;
    }
    if (!strcasecmp(spec, "gpu")) return first_of_type(list, count, IST_DEVICE_GPU);
    if (!strcasecmp(spec, "cpu")) return first_of_type(list, count, IST_DEVICE_CPU);
    if (!strncasecmp(spec, "uuid:", 5)) {
        for (int i = 0; i < count; i++)
            if (uuid_matches(list[i].uuid, spec + 5)) return i;
        return -1;
    }
    int a, b, end = 0;
    if (isdigit((unsigned char)*spec) && sscanf(spec, "%9d:%9d%n", &a, &b, &end) == 2 && !spec[end]) {
        for (int i = 0; i < count; i++)
            if (list[i].platform == a && list[i].device == b) return i;
        return -1;
    }
    size_t digits = strspn(spec, "0123456789");
    if (!spec[digits] && digits < 10) {
        for (int i = 0; i < count; i++)
            if (list[i].index == atoi(spec)) return i;
        if (digits < 3) return -1;
    }
    for (int i = 0; i < count; i++)
        if (contains(list[i].name, spec)) return i;
    for (int i = 0; i < count; i++)
        if (contains(list[i].platform_name, spec)) return i;
    return -1;
}

/* Drivers that are there and do not load are the likelier reason, and limits of the process one of theirs. */
static ist_status fail_no_device(ist_error *err) {
    char why[320];
    if (ist_driver_problem(why, sizeof why))
        return ist_fail(err, IST_E_NO_DEVICE, "no OpenCL device can be used: a driver does not load: %s", why);
    if (ist_limits_explain(NULL, why, sizeof why))
        return ist_fail(err, IST_E_NO_DEVICE, "no OpenCL device can be used: %s", why);
    return ist_fail(err, IST_E_NO_DEVICE,
                    "no OpenCL device on this machine: install a driver, for example pocl-opencl-icd for the CPU");
}

ist_status ist_device_select(const ist_device_info *list, int count, const char *spec, int *index, ist_error *err) {
    int i = find(list, count, spec);
    if (i >= 0) {
        *index = i;
        return IST_OK;
    }
    if (count == 0) return fail_no_device(err);
    char have[400];
    size_t at = 0;
    for (int k = 0; k < count && at < sizeof have; k++)
        at += (size_t)snprintf(have + at, sizeof have - at, "%s%d = %s (%s)", k ? ", " : "", list[k].index,
                               list[k].name, list[k].platform_name);
    return ist_fail(err, IST_E_NO_DEVICE, "no device matches \"%s\"; there %s %d: %s", spec ? spec : "",
                    ist_plural((size_t)count, "is", "are"), count, have);
}
