/* A layer that makes a driver's releases wait: clReleaseMemObject returns when the last queue used is empty, as it does
 * in some drivers. It stands between the audit layer and the platforms, for the program releases. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <string.h>

static const cl_icd_dispatch *next;
static cl_command_queue last;

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret) {
    cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
    if (value && size < sizeof version) return CL_INVALID_VALUE;
    if (value) memcpy(value, &version, sizeof version);
    if (size_ret) *size_ret = sizeof version;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                  const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                  cl_event *event) {
    last = queue;
    return next->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event);
}

static cl_int CL_API_CALL release(cl_mem object) {
    if (last) next->clFinish(last);
    return next->clReleaseMemObject(object);
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *below, cl_uint *entries_ret,
                                            const cl_icd_dispatch **dispatch) {
    static cl_icd_dispatch table;
    cl_uint known = (cl_uint)(sizeof table / sizeof(void *));
    next = below;
    table.clEnqueueNDRangeKernel = enqueue;
    table.clReleaseMemObject = release;
    *entries_ret = entries < known ? entries : known;
    *dispatch = &table;
    return CL_SUCCESS;
}
