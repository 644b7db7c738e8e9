#!/usr/bin/env python3
"""Masks of everything beside the published generator, by turns in one run.

    peers_everything.py --mobilesam CHECKOUT --bench BINARY --segmenter CKPT --image FILE [--device cuda|cpu] [--half]
                        [--rounds N] [--turns N] [--iou P] [--stability P] [--side N] [-- OPTIONS OF bench_everything]

Times SamAutomaticMaskGenerator.generate (MobileSAM's checkout, as published: fp32, binary masks) on PyTorch's device and
bench_everything on the same image with the same parameters, alternating --turns times; prints medians in ms and their ratio.
Needs PyTorch, torchvision, timm and safetensors.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from PIL import Image


def generator(a):
    sys.path.insert(0, a.mobilesam)
    import mobile_sam
    from safetensors.torch import load_file
    model = mobile_sam.sam_model_registry["vit_t"]()
    model.load_state_dict(load_file(a.segmenter), strict=False)
    return mobile_sam.SamAutomaticMaskGenerator(model.to(a.device).eval(),  # which computes biases from what was loaded
                                                points_per_side=a.side, pred_iou_thresh=a.iou,
                                                stability_score_thresh=a.stability)


def published(g, image, a):
    begin = time.perf_counter()
    masks = g.generate(image)
    if a.device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3, len(masks)


def isthmus(a):
    cmd = [a.bench, a.segmenter, a.image, "--side", str(a.side), "--iou", str(a.iou), "--stability", str(a.stability), "--rounds", str(a.rounds)]
    out = subprocess.run(cmd + ["--half"] * a.half + a.options, check=True, capture_output=True, text=True).stdout
    m = re.search(r"([\d.]+) median.*?(\d+) masks", out)
    return float(m.group(1)), int(m.group(2))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--mobilesam", "--bench", "--segmenter", "--image"):
        p.add_argument(name, required=True)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--half", action="store_true")
    for name, value in (("--rounds", 20), ("--turns", 3), ("--side", 32)):
        p.add_argument(name, type=int, default=value)
    for name, value in (("--iou", 0.88), ("--stability", 0.95)):
        p.add_argument(name, type=float, default=value)
    p.add_argument("options", nargs="*")
    a = p.parse_args()
    torch.set_grad_enabled(False)
    image, g = np.array(Image.open(a.image).convert("RGB")), generator(a)
    published(g, image, a)
    theirs, ours = [], []
    for _ in range(a.turns):
        theirs.append(published(g, image, a))
        ours.append(isthmus(a))
        print("published %.1f ms, %d masks; isthmus %.3f ms, %d masks" % (theirs[-1] + ours[-1]), flush=True)
    x, y = (statistics.median(t[0] for t in side) for side in (theirs, ours))
    print("%s %s, PyTorch %s: published %.1f, isthmus %.2f ms: %.1f times" % (
        a.device, torch.cuda.get_device_name() if a.device == "cuda" else os.cpu_count(), torch.__version__, x, y, x / y))


if __name__ == "__main__":
    main()
