#!/usr/bin/env python3
"""An ONNX file on tinygrad's OpenCL device, as a child that runs a frame per line of input. peers_gpu.py starts it.

    tinygrad_peer.py MODEL.onnx ARRAYS.npz [--sorted] [--beam N --beam-seconds S --beam-jobs J] [--limit S]

ARRAYS has the inputs i0, i1, ... and the published module's outputs o0, o1, ... in the file's order. The network goes through
tinygrad's ONNX frontend in float, its inputs stay on the device, and TinyJit captures it without what does not depend on
them. Operators that the frontend lacks or refuses are here as tensor operations, and are named where a network used them.

Printed: `ready` and a JSON object: launches, what was searched, and so on; or `failed` and one, when nothing runs or
the outputs differ from the published ones (--sorted: as sorted numbers, for queries that may come in another
order). Then a line `run` or `beam` runs a frame and gives its milliseconds on the host, from the call to the end of the
device's work.

--beam N searches the kernels' forms as tinygrad's BEAM=N does, but no longer than --beam-seconds: J processes take the
kernels, those with most time in a frame first, and where that did not end in a faster one the form is what tinygrad's rules
choose. The search ends sooner where --limit, for all until the line is printed, asks for it.
"""
import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from math import prod

os.environ.setdefault("DEV", "CL")

import numpy as np                                                   # noqa: E402
import onnx                                                          # noqa: E402
from tinygrad import Device, Tensor, dtypes                          # noqa: E402
from tinygrad.codegen import to_program                              # noqa: E402
from tinygrad.codegen.opt import search                              # noqa: E402
from tinygrad.codegen.opt.postrange import args_from_ast             # noqa: E402
from tinygrad.engine import jit, realize                             # noqa: E402
from tinygrad.helpers import GlobalCounters                 # noqa: E402
from tinygrad.nn.onnx import OnnxRunner, onnx_ops                    # noqa: E402
from tinygrad.uop.ops import Ops                                     # noqa: E402

GRACE_S = 6                     # for a candidate that is being compiled when the time is up
SEARCHED = 64                   # kernels at most
TOLERANCE = 0.01                # of an output's standard deviation
given = set()                   # operators of this file that a network used


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=0):
    """GridSample as D-FINE uses it: four gathers from the rows of pixels."""
    if (mode, padding_mode, align_corners) not in (("bilinear", "zeros", 0), ("linear", "zeros", 0)):
        raise NotImplementedError("GridSample with %s, %s, align_corners %d" % (mode, padding_mode, align_corners))
    given.add("GridSample")
    n, c, h, w = x.shape
    points, places = x.reshape(n, c, h * w), grid.shape[1:3]
    px, py = (((grid[..., k] + 1) * (s / 2) - 0.5).reshape(n, 1, -1) for k, s in ((0, w), (1, h)))
    x0, y0, total = px.floor(), py.floor(), 0
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        cx, cy = x0 + dx, y0 + dy
        weight = (1 - (px - cx).abs()) * (1 - (py - cy).abs())
        inside = (cx >= 0) * (cx < w) * (cy >= 0) * (cy < h)
        at = (cy.clip(0, h - 1) * w + cx.clip(0, w - 1)).cast(dtypes.int32)
        total = total + points.gather(2, at.expand(n, c, at.shape[2])) * inside.where(weight, 0)
    return total.reshape(n, c, *places)


def scatter_nd(x, indices, updates, reduction="none"):
    """ScatterND by whole rows. The frontend's own writes in place, which tinygrad refuses for a tensor that has other uses."""
    if reduction != "none":
        raise NotImplementedError("ScatterND with reduction %s" % reduction)
    given.add("ScatterND")
    k = indices.shape[-1]
    rows, row = prod(x.shape[:k]), prod(x.shape[k:])
    at = sum(((indices[..., j] < 0).where(x.shape[j], 0) + indices[..., j]) * prod(x.shape[j + 1:k]) for j in range(k))
    at = at.reshape(-1, 1).expand(-1, row)
    return x.reshape(rows, row).scatter(0, at, updates.reshape(-1, row)).reshape(x.shape).contiguous()


class Network:
    """The file as a function of resident inputs."""

    def __init__(self, path, arrays):
        self.runner = OnnxRunner(path)
        self.runner.onnx_ops = dict(onnx_ops, GridSample=grid_sample, ScatterND=scatter_nd)
        # Shapes, axes and the like. The frontend would have tinygrad's CPU device compute those that are single numbers, and
        # that device asks for a clang on the machine.
        self.runner._python_const_cache.update({v.name: onnx.numpy_helper.to_array(v).tolist() for v in onnx.load(path).graph.initializer
                                                if v.data_type != onnx.TensorProto.UINT8 and prod(v.dims) <= 16})
        self.inputs = {n: Tensor(arrays["i%d" % k]).realize() for k, n in enumerate(self.runner.graph_inputs)}
        self.kernels = {}                                # what a capture compiled: key -> [tree, launches]

    def frame(self, **inputs):
        return tuple(v.cast(dtypes.float32).contiguous() for v in self.runner(inputs).values())

    def captured(self, searched=(), amount=0):
        """(a function that runs a frame and waits for it, its outputs); kernels whose key is in searched take the form that
        tinygrad's cache of searches has for them."""
        def compiled(linear, beam=None, **rest):
            calls = []
            for call in linear.src:
                tree = call.src[0]
                if tree.op is Ops.SINK:
                    self.kernels.setdefault(tree.key, [tree, 0])[1] += 1
                    if tree.key in searched:
                        call = call.replace(src=(with_beam(tree, amount), *call.src[1:]))
                calls.append(call)
            return realize.compile_linear(linear.replace(src=tuple(calls)), beam=0, **rest)

        self.kernels.clear()
        jit.compile_linear, real = compiled, jit.compile_linear
        run = jit.TinyJit(self.frame, prune=True)

        def waiting():
            outputs = run(**self.inputs)
            Device[Device.DEFAULT].synchronize()
            return outputs

        try:
            for _ in range(3):                           # as it is, captured, replayed
                outputs = waiting()
        finally:
            jit.compile_linear = real
        return waiting, outputs


def wrong(outputs, arrays, as_sorted):
    """What is wrong with the outputs, or None."""
    for k, got in enumerate(outputs):
        got, expect = got.numpy().reshape(-1), arrays["o%d" % k].reshape(-1)
        if got.shape != expect.shape:
            return "output %d has %d numbers for %d" % (k, got.size, expect.size)
        if as_sorted:
            got, expect = np.sort(got), np.sort(expect)
        away, allowed = np.abs(got - expect).max(), TOLERANCE * (expect.std() + 0.1 * np.abs(expect).mean())
        if not away <= allowed:
            return "output %d is up to %.3g away, %.3g allowed" % (k, away, allowed)
    return None


def with_beam(tree, amount):
    return tree.replace(arg=dataclasses.replace(tree.arg, beam=amount))


def own_ms(tree, program):
    """A kernel's own time, in any unit that is the same for all."""
    buffers, values = args_from_ast(tree, Device.DEFAULT)
    return min(search._time_program(program, values, [b.ensure_allocated() for b in buffers]))


def search_one(work):
    """In a process of its own: (the kernel's key, whether the search came to a form that is faster than the rules' choice;
    None: no time was left). What it finds is in tinygrad's cache on the disk. When the time is up there is nothing left to try, so that a search ends
    with the best so far."""
    tree, amount, until = work
    actions, attempt, renderer = search.get_kernel_actions, search._try_compile, Device[Device.DEFAULT].renderer
    search.get_kernel_actions = lambda *a, **k: actions(*a, **k) if time.time() < until else {}
    search._try_compile = lambda x: attempt(x) if time.time() < until else (x[0], None)
    if time.time() > until:
        return tree.key, None
    plain = own_ms(tree, to_program(tree, renderer))
    return tree.key, own_ms(tree, to_program(with_beam(tree, amount), renderer)) < plain


def search_forms(kernels, amount, seconds, jobs):
    """Searches forms for kernels, those with most time in a frame first, until the time is up: the keys of those that became
    faster, and what was searched."""
    until, timed = time.time() + seconds, []
    for key, (tree, launches) in kernels.items():
        with contextlib.suppress(RuntimeError):
            timed.append((launches * own_ms(tree, to_program(tree, Device[Device.DEFAULT].renderer)), key, tree))
    timed.sort(key=lambda t: -t[0])
    share, tried, faster = {key: t / sum(t for t, *_ in timed) for t, key, _ in timed}, 0, set()
    pool = multiprocessing.get_context("spawn").Pool(jobs)
    found = pool.imap_unordered(search_one, [(tree, amount, until) for _, _, tree in timed[:SEARCHED]])
    with contextlib.suppress(StopIteration, multiprocessing.TimeoutError):
        while True:
            key, better = found.next(timeout=max(0, until + GRACE_S - time.time()))
            tried += better is not None
            faster.update([key] if better else [])
    pool.terminate()
    return faster, dict(kernels=len(timed), searched=tried, faster=len(faster), seconds=seconds,
                        faster_share=round(sum(share[k] for k in faster), 3))


def launches(run):
    GlobalCounters.reset()
    run()
    return GlobalCounters.kernel_count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("arrays")
    p.add_argument("--sorted", action="store_true")
    p.add_argument("--beam", type=int, default=0)
    p.add_argument("--beam-seconds", type=float, default=60)
    p.add_argument("--limit", type=float, default=600)
    p.add_argument("--beam-jobs", type=int, default=os.cpu_count())
    a = p.parse_args()
    arrays, said, runs, start = dict(np.load(a.arrays)), {}, {}, time.time()

    def prepare(name, **choice):
        run, outputs = network.captured(**choice)
        trouble = wrong(outputs, arrays, a.sorted)
        if trouble:
            raise RuntimeError(name + ": " + trouble)
        runs[name] = run
        said[name] = dict(launches=launches(run), prepared_s=round(time.time() - start, 1))

    try:
        network = Network(a.model, arrays)
        prepare("run")
        again = 0.5 * (time.time() - start) + GRACE_S    # capturing once more: nearly all kernels are there
        seconds = min(a.beam_seconds, start + a.limit - time.time() - again)
        if a.beam and seconds > 0:
            faster, said["search"] = search_forms(network.kernels, a.beam, round(seconds), a.beam_jobs)
            prepare("beam", searched=faster, amount=a.beam)
    except Exception as error:                           # an operator, a compiler, a device's memory: each is this network's result
        said["failed"] = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
    said.update(given=sorted(given), device=Device[Device.DEFAULT].device_name)
    print("ready" if runs else "failed", json.dumps(said), flush=True)
    for line in sys.stdin:
        t = time.perf_counter()
        runs[line.strip()]()
        print((time.perf_counter() - t) * 1e3, flush=True)


if __name__ == "__main__":
    main()
