// Planted faults of CUDA's runtime; see opencl.c for how to read the marks.
#include <cuda_runtime.h>

__global__ void first(float *x) {
    x[threadIdx.x] += 1;
}

void infer(float *device, float *host, int n, cudaStream_t stream) {
    float *scratch;
    cudaMalloc(&scratch, n);                                                    // expect: creation_in_frame medium
    cudaMemcpyAsync(device, host, n, cudaMemcpyHostToDevice, stream);           // expect: upload necessary
    first<<<1, 64, 0, stream>>>(device);
    cudaDeviceSynchronize();                                                    // expect: wait_mid_frame medium
    cudaMemcpy(host, device, n, cudaMemcpyDeviceToHost);                        // expect: read_write_chain critical
    cudaMemcpy(device, host, n, cudaMemcpyHostToDevice);
    first<<<1, 64, 0, stream>>>(device);
    for (int i = 0; i < n; i++)
        cudaMemcpy(&host[i], device + i, sizeof(float), cudaMemcpyDeviceToHost); // expect: scalar_read critical
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {}                     // expect: poll_loop critical
    cudaMemcpyAsync(scratch, device, n, cudaMemcpyDeviceToDevice, stream);      // expect: device_copy necessary
    cudaStreamSynchronize(stream);                                              // expect: wait necessary
}
