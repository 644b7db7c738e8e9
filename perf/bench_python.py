"""What Python adds to the engine: bench_python.py [--rounds N] [--frames N] [options of isthmus bench]

`isthmus bench` and the package measure the same by turns: one frame in memory of 1280 x 720, one call at a time (p50, ms)
and with frames in flight (frames per second). `added` is what a call takes beyond what the engine itself measured of that
call, from the start of ist_submit to the end of ist_receive: it needs no other run to compare with. `floor` is ist_submit
and ist_receive in the same loops, without images to describe and results to make: what C does. Without the program (--floor) the
package is compared with that alone. With --dfine and --mobilesam, checkouts of the published repositories, their PyTorch code
takes its turn in a loop, on the GPU where there is one, in fp16 (autocast) where the engine is: image in memory to masks in
memory, the same checkpoints, the same number of boxes (support/published_loop.py).

Needs the package: PYTHONPATH=build/gcc/python of a build with -DISTHMUS_PYTHON=ON, or installed. Prints one JSON object.
"""
import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

import isthmus
from isthmus._lib import check, ffi, lib
from isthmus.images import fill_image


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--boxes", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--imgsz", type=int)
    parser.add_argument("--segmenter-size", type=int)
    parser.add_argument("--no-masks", action="store_true")
    parser.add_argument("--floor", action="store_true", help="do not run isthmus bench")
    parser.add_argument("--dfine", help="checkout of Peterande/D-FINE")
    parser.add_argument("--mobilesam", help="checkout of ChaoningZhang/MobileSAM")
    parser.add_argument("--published-frames", type=int, help="of a round of the published code (--frames)")
    for name in ("detector", "segmenter", "device", "precision"):
        parser.add_argument("--" + name)
    a = parser.parse_args()
    if a.dfine and not (a.mobilesam or a.no_masks):
        parser.error("--dfine needs --mobilesam, or --no-masks")
    if a.dfine and a.segmenter_size:
        parser.error("the published code segments at 1024 only: no --segmenter-size")
    return a


def program(a):
    """p50 in ms and frames per second of isthmus bench."""
    options = ["--frames", a.frames, "--boxes", a.boxes, "--batch", a.batch]
    for name in ("detector", "segmenter", "device", "precision", "imgsz", "segmenter_size"):
        if getattr(a, name) is not None:
            options += ["--" + name.replace("_", "-"), getattr(a, name)]
    options += ["--no-masks"] if a.no_masks else []
    path = Path(isthmus.__file__).parent / "_native" / "isthmus"
    environment = dict(os.environ, ISTHMUS_WEIGHTS_DIR=isthmus.weights())
    done = subprocess.run([path, "bench", "--json", *map(str, options)], check=True, capture_output=True, env=environment)
    facts = json.loads(done.stdout)
    return {"p50": facts["latency_ms"]["p50"], "fps": facts["throughput_fps"]}


def open_engine(a):
    options = {name: getattr(a, name) for name in ("detector", "segmenter", "device", "precision") if getattr(a, name)}
    if a.no_masks:
        options["segmenter"] = None
    return isthmus.Engine(**options, input_size=a.imgsz, segmenter_size=a.segmenter_size, batch=a.batch,
                          max_objects=a.boxes, conf=0)


def make_frame():
    y, x = np.mgrid[:720, :1280]
    ramps = np.stack([192 * x // 1280, 192 * y // 720, np.full_like(x, 96)], -1)
    return (ramps + np.random.default_rng(1).integers(0, 16, ramps.shape)).astype(np.uint8)


def package(engine, image, frames, batch):
    """The same of the package, and what a call takes beyond the engine's own time."""
    images = [image] * batch
    for _ in range(10):
        engine.submit(images).result()
    calls, added = [], []
    for _ in range(frames):
        start = time.perf_counter()
        found = engine.submit(images).result()
        calls.append(1e3 * (time.perf_counter() - start))
        added.append(calls[-1] - found[0].times.total)
    start = time.perf_counter()
    count = sum(1 for _ in engine.stream(image for _ in range(frames * batch)))
    fps = count / (time.perf_counter() - start)
    return {"p50": statistics.median(calls), "fps": fps, "added": statistics.median(added)}


def floor(engine, image, frames, batch):
    """The same of the C functions."""
    handle, error, structs = engine._handle, ffi.new("ist_error *"), ffi.new("ist_image[]", batch)
    keep = [fill_image(structs[i], isthmus.Image(image), 1) for i in range(batch)]
    result = ffi.gc(ffi.new("held_batch *"), lib.held_batch_free)

    def submit():
        check(lib.held_submit(handle, structs, batch, error), error)

    def receive():
        lib.held_batch_free(result)
        check(lib.held_receive(handle, result, error), error)

    calls = []
    for _ in range(frames):
        start = time.perf_counter()
        submit()
        receive()
        calls.append(1e3 * (time.perf_counter() - start))
    start = time.perf_counter()
    for i in range(frames):
        if i >= engine.frames_in_flight:
            receive()
        submit()
    for _ in range(min(frames, engine.frames_in_flight)):
        receive()
    fps = frames * batch / (time.perf_counter() - start)
    del keep
    return {"p50": statistics.median(calls), "fps": fps}


def open_published(a, precision):
    import torch
    from support.published_loop import PublishedLoop
    weights = Path(isthmus.weights())
    segmenter = None if a.no_masks else a.segmenter or weights / "mobile_sam_demo.safetensors"
    loop = PublishedLoop(a.dfine, a.mobilesam, str(a.detector or weights / "dfine_n_demo.safetensors"),
                         segmenter and str(segmenter), "cuda" if torch.cuda.is_available() else "cpu", precision == "fp16",
                         a.boxes, a.imgsz or 640)
    name = torch.cuda.get_device_name() if loop.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return loop, {"torch": torch.__version__, "device": name, "half": loop.half}


def published(loop, image, frames, batch):
    """The same of the published code, which takes one image after the other. Without work in flight its rate follows from
    its calls."""
    for _ in range(3):
        loop(image)
    calls = []
    for _ in range(frames):
        start = time.perf_counter()
        for _ in range(batch):
            loop(image)
        calls.append(1e3 * (time.perf_counter() - start))
    return {"p50": statistics.median(calls), "fps": 1e3 * batch * frames / sum(calls)}


def check_alike(loop, engine, image):
    """Both must find the same, or their times mean nothing."""
    frame, (scores, boxes, _) = engine(image), loop(image)
    order = np.argsort(-scores)
    off = max(abs(frame.scores[0] - scores[order[0]]), np.abs(frame.boxes[0] - boxes[order[0]]).max() / 1280)
    if off > 0.02:
        raise SystemExit(f"the published code finds {scores[order[0]]:.3f} at {boxes[order[0]]}, "
                         f"the engine {frame.scores[0]:.3f} at {frame.boxes[0]}")


def main():
    a = arguments()
    rounds = {"floor": [], "python": []}
    if not a.floor:
        rounds["isthmus bench"] = []
    if a.dfine:
        rounds["published"] = []
    image, loop = make_frame(), None
    for _ in range(a.rounds):
        if not a.floor:
            rounds["isthmus bench"].append(program(a))
        with open_engine(a) as engine:
            rounds["python"].append(package(engine, image, a.frames, a.batch))
            rounds["floor"].append(floor(engine, image, a.frames, a.batch))
            info = engine.info
            if a.dfine and not loop:
                loop, facts = open_published(a, info.precision)
                check_alike(loop, engine, image)
        if loop:
            rounds["published"].append(published(loop, image, a.published_frames or a.frames, a.batch))
    result = {"device": info.device.name, "driver": info.device.driver, "precision": info.precision, "detector": info.detector,
              "segmenter": info.segmenter, "batch": a.batch, "frames": a.frames}
    for who, each in rounds.items():
        result[who] = {key: round(statistics.median(r[key] for r in each), 4) for key in each[0]}
    if loop:
        result["published code"] = facts
        result["times the published code"] = {
            "p50": round(result["published"]["p50"] / result["python"]["p50"], 2),
            "fps": round(result["python"]["fps"] / result["published"]["fps"], 2)}
    for who in rounds:
        if who not in ("python", "published"):
            result[f"throughput lost to {who}"] = round(1 - result["python"]["fps"] / result[who]["fps"], 4)
    result["rounds"] = rounds
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
