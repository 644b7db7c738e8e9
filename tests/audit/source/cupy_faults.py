# Planted faults of CuPy; see opencl.c for how to read the marks.
import cupy as cp
import numpy as np


def process_frame(image: np.ndarray, state: dict):
    x = cp.asarray(image)  # expect: upload necessary
    y = cp.fft.fft2(x)
    if y.sum() > 0:  # expect: implicit_wait medium
        y = cp.abs(y)
    n = float(y.max())  # expect: scalar_read medium
    idx = cp.nonzero(y)  # expect: data_dependent_shape medium
    for row in y:
        state["row"] = row.get()  # expect: transfer_in_loop critical
    h = cp.asnumpy(y)  # expect: read_write_chain critical
    z = cp.array(h)
    cp.cuda.Stream.null.synchronize()  # expect: wait_mid_frame medium
    z = cp.sqrt(z)
    print(z)  # expect: implicit_wait medium
    state.get("x")
    return z.get()  # expect: download necessary
