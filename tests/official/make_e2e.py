#!/usr/bin/env python3
"""End-to-end goldens: synthetic checkpoints and images through the published code, stored in tests/golden/e2e.

    make_e2e.py --dfine CHECKOUT --mobilesam CHECKOUT --out DIR [--only n80,s3] [--isthmus BINARY]

Owns the list of cases. For each it looks for image seeds whose result is robust, so that a test can ask for the same
objects in the same order: 5 to 16 objects, neighbouring scores further apart than GAP, the threshold THRESHOLD_GAP away
from every score, the selection of the 300 queries clear of its boundary, and the same result in float64. With --isthmus
nothing is searched: checkpoints and images of the stored files are written to a temporary folder and the binary is compared with the published code on them.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image

import compare
import official
from synth import FIXED, fnv1a64, phantom, weight

CASES = ("n80", "n1", "n3", "s80", "s1", "s3", "x80")
IMAGES = ((480, 640, False), (558, 422, True), (720, 1280, False), (97, 131, False))
EXTREMES = ((1, 1, False), (3, 200, False))                                      # for the first case only
GAP, THRESHOLD_GAP, SELECTION_GAP, LEAST, MOST, CELLS = 5e-5, 1e-3, 3e-4, 5, 16, 13000


def synthetic(model, seed):
    """state_dict with every generated entry filled; the others keep what the architecture gives."""
    return {k: v if k.rsplit(".", 1)[-1] in FIXED else torch.from_numpy(weight(k, tuple(v.shape), seed)) for k, v in model.state_dict().items()}


def picture(height, width, gray, seed):
    p = phantom(height, width, seed)
    return Image.fromarray(p[:, :, 0] if gray else p), "%016x" % fnv1a64(np.ascontiguousarray(p[:, :, 0] if gray else p).tobytes())


def clear(chain, exact, conf, image):
    """Whether a test can ask for the same objects in the same order: few enough, well apart, and the same in float64."""
    labels, boxes, scores = chain.detect(image)
    n, selection = int((scores > conf).sum()), chain.selection
    if not LEAST <= n <= MOST or np.abs(scores - conf).min() < THRESHOLD_GAP or selection < SELECTION_GAP or -np.diff(scores[:n + 1]).max() < GAP:
        return False
    labels64, boxes64, scores64 = exact.detect(image)
    return (labels[:n] == labels64[:n]).all() and np.abs(boxes[:n] - boxes64[:n]).max() < 0.01 and np.abs(scores - scores64)[:n].max() < GAP / 2


def search(a, case, size, classes, sam, known):
    """Goldens of one case: the first detector seed with useful scores, for each image the first seed that is clear, counted
    from the one that is known for its size."""
    for seed in range(101, 200):
        base, _ = official.build_dfine(a.dfine, size, classes)
        chain = compare.Official(a.dfine, a.mobilesam, synthetic(base, seed))
        scores = chain.detect(picture(480, 640, False, seed)[0])[2]
        if 0.4 < scores[9] < 0.94 and scores[0] - scores[16] > 0.02:
            break
    conf = round(float(scores[6 if size == "x" else 9]), 2)                     # X crowds its scores
    chain.predictor, stored = sam, []
    exact = compare.Official(a.dfine, a.mobilesam, synthetic(base, seed), dtype=torch.float64)
    for h, w, gray in IMAGES + (EXTREMES if case == CASES[0] else ()):
        for image_seed in range(known.get((h, w), 1), 300):
            im, fnv = picture(h, w, gray, image_seed)
            if clear(chain, exact, conf, im.convert("RGB")):
                break
        else:
            sys.exit("%s: no clear %dx%d image" % (case, h, w))
        ref = chain.run(im.convert("RGB"), conf, MOST)
        step = max(1, int(np.ceil(np.sqrt(h * w / CELLS))))
        stored.append(dict(phantom=dict(height=h, width=w, gray=gray, seed=image_seed, fnv=fnv), **compare.golden(ref, step == 1, step)))
        o = ref["kept"]
        print("%s seed %d threshold %.2f: %dx%d seed %d, %d objects, least gap %.1e, mask areas %s" % (
            case, seed, conf, h, w, image_seed, len(o), min(p["score"] - q["score"] for p, q in zip(o, o[1:])), [int(q["mask"].sum()) for q in o][:6]), flush=True)
    return dict(schema=1, detector=dict(model=size, classes=classes, seed=seed), segmenter=dict(seed=a.sam_seed), conf=conf, max_objects=MOST, images=stored)


def replay(a):
    """Runs isthmus on the checkpoints and images of every stored golden."""
    from safetensors.torch import save_file
    failed = 0
    for path in sorted(glob.glob(os.path.join(a.out, "*.json"))):
        g = json.load(open(path))
        d = g["detector"]
        with tempfile.TemporaryDirectory() as tmp:
            for model, seed, file in ((official.build_dfine(a.dfine, d["model"], d["classes"])[0], d["seed"], "detector"),
                                      (official.build_mobile_sam(a.mobilesam), g["segmenter"]["seed"], "segmenter")):
                save_file({k: v.clone().contiguous() for k, v in synthetic(model, seed).items()}, os.path.join(tmp, file + ".safetensors"))
            os.mkdir(os.path.join(tmp, "in"))
            for i, im in enumerate(g["images"]):
                p = im["phantom"]
                picture(p["height"], p["width"], p["gray"], p["seed"])[0].save(os.path.join(tmp, "in", "%d.png" % i))
            print(os.path.basename(path), flush=True)
            cmd = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare.py"), "--dfine", a.dfine,
                   "--mobilesam", a.mobilesam, "--isthmus", a.isthmus, "--detector", os.path.join(tmp, "detector.safetensors"),
                   "--segmenter", os.path.join(tmp, "segmenter.safetensors"), "--images", os.path.join(tmp, "in"),
                   "--conf", str(g["conf"]), "--max-objects", str(g["max_objects"])]
            failed += subprocess.run(cmd).returncode != 0
    sys.exit(1 if failed else 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--dfine", "--mobilesam", "--out"):
        p.add_argument(name, required=True)
    p.add_argument("--only", default=",".join(CASES))
    p.add_argument("--isthmus")
    p.add_argument("--sam-seed", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    official.check_pillow()
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    if a.isthmus:
        replay(a)
    sam = official.build_mobile_sam(a.mobilesam)
    sam = official.sam_predictor(official.load_strict(sam, synthetic(sam, a.sam_seed)))
    for case in a.only.split(","):
        path, known = os.path.join(a.out, "dfine_%s.json" % case), {}
        if os.path.exists(path):
            known = {(i["height"], i["width"]): i["phantom"]["seed"] for i in json.load(open(path))["images"]}
        g = search(a, case, case[0], int(case[1:]), sam, known)
        with open(path, "w") as f:
            json.dump(g, f, separators=(",", ":"))


if __name__ == "__main__":
    main()
