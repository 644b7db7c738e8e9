"""Writes tests/golden/rle.json: masks as uncompressed column-major runs with what pycocotools makes of them.

Usage: make_rle.py GOLDEN_MODELS_DIR OUT.json     (needs numpy and pycocotools)
GOLDEN_MODELS_DIR holds mobilesam.safetensors, whose rle.* entries come from the official SAM code.
"""
import json
import struct
import sys

import numpy as np
from pycocotools import mask as coco


def runs_of(mask):
    flat = mask.flatten(order="F").astype(np.uint8)
    change = np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist()
    edges = [0] + change + [flat.size]
    return [b - a for a, b in zip(edges, edges[1:])]


def case(name, mask, runs=None):
    mask = np.asfortranarray(mask.astype(np.uint8))
    rle = coco.encode(mask)
    mine = runs_of(mask)
    assert runs is None or runs == mine, name
    return {"name": name, "width": mask.shape[1], "height": mask.shape[0], "runs": mine,
            "counts": rle["counts"].decode(), "area": int(coco.area(rle))}


def safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: np.frombuffer(data[8 + n:][v["data_offsets"][0]:v["data_offsets"][1]],
                             {"I32": "<i4", "I64": "<i8", "F32": "<f4"}[v["dtype"]])
            for k, v in head.items() if k.startswith("rle.")}


def main():
    rng = np.random.default_rng(2)
    cases = []
    for h in (1, 2, 31, 32, 33, 63, 64, 65, 97):
        w = int(rng.integers(1, 24))
        for kind, p in (("sparse", 0.05), ("half", 0.5), ("dense", 0.95)):
            cases.append(case(f"{kind} {w}x{h}", rng.random((h, w)) < p))
        cases.append(case(f"empty {w}x{h}", np.zeros((h, w))))
        cases.append(case(f"full {w}x{h}", np.ones((h, w))))
    y, x = np.mgrid[:480, :640]
    cases.append(case("disc 640x480", (x - 300) ** 2 + (y - 250) ** 2 < 150 ** 2))
    cases.append(case("bottom 640x480", (y > 400) & (x > 100)))
    for name, runs in safetensors(sys.argv[1] + "/mobilesam.safetensors").items():
        flat = np.repeat(np.arange(len(runs)) % 2, runs)
        cases.append(case("official " + name[4:], flat.reshape(128, 96).T, runs.tolist()))
    with open(sys.argv[2], "w") as f:
        f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]\n")


main()
