"""What Python adds to the engine: bench_python.py [--rounds N] [--frames N] [options of isthmus bench]

`isthmus bench` and the package measure the same by turns: one frame in memory of 1280 x 720, one call at a time (p50, ms)
and with frames in flight (frames per second). `added` is what a call takes beyond what the engine itself measured of that
call, from the start of ist_submit to the end of ist_receive: it needs no other run to compare with.

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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--boxes", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--imgsz", type=int)
    parser.add_argument("--segmenter-size", type=int)
    parser.add_argument("--no-masks", action="store_true")
    for name in ("detector", "segmenter", "device", "precision"):
        parser.add_argument("--" + name)
    return parser.parse_args()


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
    return {"p50": facts["latency_ms"]["p50"], "fps": facts["throughput_fps"]}, facts


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


def main():
    a = arguments()
    rounds = {"isthmus bench": [], "python": []}
    image = make_frame()
    for _ in range(a.rounds):
        numbers, facts = program(a)
        rounds["isthmus bench"].append(numbers)
        with open_engine(a) as engine:
            rounds["python"].append(package(engine, image, a.frames, a.batch))
    result = {key: facts[key] for key in ("device", "driver", "precision", "detector", "segmenter", "batch", "frames")}
    for who, each in rounds.items():
        result[who] = {key: round(statistics.median(r[key] for r in each), 4) for key in each[0]}
    result["throughput_lost"] = round(1 - result["python"]["fps"] / result["isthmus bench"]["fps"], 4)
    result["rounds"] = rounds
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
