"""What more Ray actors bring: bench_ray.py [--gpus 0.5 | --cores 1] [--actors N] [--images N] [--rounds N] [engine options]

    python3 perf/bench_ray.py --gpus 0.5 --device gpu          two actors on one GPU beside one: at least 1.15 times
    python3 perf/bench_ray.py --cores 1 --no-masks --imgsz 256 actors of one CPU core each: near-linear from 1 to 2

Actors of isthmus.ray.Predictor with an engine each get batches of JPEG files in memory, the next as soon as one is done, as
Ray Data gives them out; the bytes are in Ray's object store before the clock starts. All actors are there in every round, and
have had a batch; a round is measured with one of them, then with two, to --actors. With --cores each actor is kept to so many
cores of its own, its driver's threads too. The rows of every round are the same as those of the first, or it fails.

Prints one JSON object: images per second (medians of the rounds), and how many times those of one actor. Needs the package
(PYTHONPATH=build/gcc/python of a build with -DISTHMUS_PYTHON=ON, or installed), ray, pyarrow and pillow.
"""
import argparse
import io
import json
import os
import statistics
import time

import numpy as np
import ray
from PIL import Image

import isthmus
from isthmus.ray import Predictor


@ray.remote
class Actor(Predictor):
    """A Predictor that stays on its cores: set before the driver starts its threads, which inherit it."""

    def __init__(self, cores, **options):
        if cores:
            os.sched_setaffinity(0, cores)
            os.environ["POCL_MAX_PTHREAD_COUNT"] = str(len(cores))
        super().__init__(**options)

    def device(self):
        return f"{self._engine.info.device.name}, driver {self._engine.info.device.driver}, {self._engine.info.precision}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=2, help="most of them (2)")
    parser.add_argument("--gpus", type=float, default=0, help="Ray's num_gpus of each: 0.5, and two share one")
    parser.add_argument("--cores", type=int, default=0, help="CPU cores of each, its own (0: all, shared)")
    parser.add_argument("--images", type=int, default=512, help="of a round (512)")
    parser.add_argument("--batch-size", type=int, default=16, help="images that an actor gets at a time (16)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of each that decode (2)")
    parser.add_argument("--no-masks", action="store_true")
    parser.add_argument("--imgsz", type=int)
    parser.add_argument("--segmenter-size", type=int)
    parser.add_argument("--batch", type=int, default=1, help="of the engine (1)")
    for name in ("detector", "segmenter", "device", "precision"):
        parser.add_argument("--" + name)
    return parser.parse_args()


def options_of(a):
    options = {name: getattr(a, name) for name in ("detector", "segmenter", "device", "precision") if getattr(a, name)}
    if a.no_masks:
        options["segmenter"] = None
    return dict(options, input_size=a.imgsz, segmenter_size=a.segmenter_size, batch=a.batch, threads=a.threads)


def make_files(count):
    """JPEG files of 1280 x 720, no two alike."""
    y, x = np.mgrid[:720, :1280]
    files = []
    for i in range(count):
        picture = np.stack([(x + 5 * i) % 256, (y + 3 * i) % 256, np.full_like(x, 96)], -1).astype(np.uint8)
        picture[200 + i % 300:260 + i % 300, 300:900] = 240
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def run(actors, batches):
    """All batches by these actors, two in each one's queue; images per second and the rows in the order of the batches."""
    waiting, rows, at_work = list(range(len(batches)))[::-1], {}, {}
    start = time.perf_counter()
    for actor in actors * 2:
        if waiting:
            i = waiting.pop()
            at_work[actor.__call__.remote(batches[i])] = (i, actor)
    while at_work:
        ready, _ = ray.wait(list(at_work))
        i, actor = at_work.pop(ready[0])
        rows[i] = ready[0]
        if waiting:
            k = waiting.pop()
            at_work[actor.__call__.remote(batches[k])] = (k, actor)
    took = time.perf_counter() - start
    tables = ray.get([rows[i] for i in range(len(batches))])
    rows = [row for table in tables for row in table.to_pylist()]
    return len(rows) / took, rows


def main():
    a = arguments()
    cores = sorted(os.sched_getaffinity(0))
    if a.cores and a.actors * a.cores > len(cores):
        raise SystemExit(f"{a.actors} actors of {a.cores} cores: there are {len(cores)}")
    ray.init(log_to_driver=False, include_dashboard=False, num_cpus=max(a.actors, len(cores)))
    try:
        report(a, cores)
    finally:
        ray.shutdown()


def report(a, cores):
    options = options_of(a)
    own = [set(cores[i * a.cores:(i + 1) * a.cores]) for i in range(a.actors)]
    actors = [Actor.options(num_cpus=1, num_gpus=a.gpus).remote(own[i], **options) for i in range(a.actors)]
    files = make_files(min(a.images, 64))
    column = np.array([files[i % len(files)] for i in range(a.images)], dtype=object)
    size = a.batch_size
    batches = [ray.put({"bytes": column[i:i + size]}) for i in range(0, a.images, size)]
    device = ray.get([actor.device.remote() for actor in actors])[0]
    ray.get([actor.__call__.remote(batches[0]) for actor in actors])
    rates, first = {k: [] for k in range(1, a.actors + 1)}, None
    for _ in range(a.rounds):
        for k in rates:
            rate, rows = run(actors[:k], batches)
            rates[k].append(rate)
            first = first or rows
            if rows != first or len(rows) != a.images or any(row["error"] for row in rows):
                raise SystemExit(f"{k} actors: other rows than one has")
    middle = {k: statistics.median(rates[k]) for k in rates}
    print(json.dumps({
        "device": device, "isthmus": isthmus.__version__, "ray": ray.__version__, "gpus": a.gpus, "cores": a.cores,
        "images": a.images, "batch_size": size, "engine_batch": a.batch, "masks": not a.no_masks,
        "images_per_second": {k: round(middle[k], 2) for k in rates},
        "times_one": {k: round(middle[k] / middle[1], 3) for k in rates},
        "rounds": {k: [round(r, 2) for r in rates[k]] for k in rates}}, indent=1))


if __name__ == "__main__":
    main()
