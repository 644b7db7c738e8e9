# Planted faults of PyOpenCL; see opencl.c for how to read the marks.
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl import mem_flags as mf


def setup(n):
    ctx = cl.create_some_context()
    queue = cl.CommandQueue(ctx)
    program = cl.Program(ctx, "kernel void f(global float *x) {}").build()
    return cl.Buffer(ctx, mf.READ_ONLY | mf.COPY_HOST_PTR, hostbuf=np.ones(n))  # expect: upload necessary


def run(ctx, program, image: np.ndarray):
    queue = cl.CommandQueue(ctx)
    a = cl.Buffer(ctx, mf.READ_WRITE, image.nbytes)  # expect: creation_in_frame medium
    b = cl.Buffer(ctx, mf.READ_ONLY | mf.USE_HOST_PTR, hostbuf=image)  # expect: host_pointer medium
    out = np.empty_like(image)
    cl.enqueue_copy(queue, a, image, is_blocking=False)  # expect: split_transfer minor
    program.f(queue, image.shape, None, a)
    queue.finish()  # expect: wait_mid_frame medium
    cl.enqueue_copy(queue, out, a)  # expect: read_write_chain critical
    cl.enqueue_copy(queue, b, out, is_blocking=False)
    event = program.f(queue, image.shape, None, b)
    for i in range(4):
        event.wait()  # expect: wait_in_loop critical
    cl.enqueue_copy(queue, b, a)  # expect: device_copy necessary
    x = cl_array.to_device(queue, image)  # expect: upload necessary
    y = cl.Program(ctx, "").build()  # expect: build_in_frame critical
    return x.get()  # expect: download necessary
