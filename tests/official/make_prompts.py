#!/usr/bin/env python3
"""Goldens of given prompts: points, boxes and masks, each prompt asked alone of the published SamPredictor.

    make_prompts.py --mobilesam CHECKOUT --out FILE [--seed N] [--segmenter CKPT]

Owns the list of prompts. For each it stores what SamPredictor.predict answers with multimask_output False and True: scores,
areas, sampled masks and sampled low-resolution logits. A mask prompt is a cone of logits (`cone`), exact in both languages.
--segmenter takes a checkpoint of weights instead of the synthetic one. Needs PyTorch and Pillow.
"""
import argparse
import json

import numpy as np
import torch

import official
from make_e2e import picture, synthetic

LOW, SAMPLES, CELLS, ODD = 256, 64, 4000, 2654435761
IMAGES = (
    (480, 640, False, 11, (
        dict(points=[[310.0, 200.5, 1]]),
        dict(points=[[120.25, 90.0, 1], [500.0, 400.0, 0]]),
        dict(box=[100.0, 80.0, 420.5, 300.25]),
        dict(points=[[250.0, 180.0, 1]], box=[100.0, 80.0, 420.5, 300.25]),
        dict(points=[[250.0, 180.0, 1], [400.0, 290.0, 0]], box=[90.0, 60.0, 430.0, 310.0]),
        dict(cone=[120, 90, 50]),
        dict(points=[[300.0, 220.0, 1]], cone=[120, 90, 50]),
        dict(points=[[300.0, 220.0, 1]], box=[200.0, 100.0, 420.0, 320.0], cone=[130, 80, 40]),
        dict(points=[[60.0, 60.0, 1], [90.5, 70.0, 1], [130.0, 300.0, 0], [20.0, 20.0, 0], [333.0, 333.0, 1]]),
        dict(points=[[-20.0, 700.0, 1], [320.0, 240.0, 1]]))),
    (558, 422, True, 12, (
        dict(box=[40.0, 50.0, 300.0, 420.0]),
        dict(points=[[10.0 * i + 31.0, 500.0 - 37.0 * i, i % 3 != 0] for i in range(12)]),
        dict(points=[[211.0, 279.0, 1]]))))


def cone(x, y, r):
    """[256, 256] logits: 6 at (x, y), 0 at distance r, and on."""
    i = np.arange(LOW, dtype=np.float64)
    return (6.0 * (1.0 - ((i[None, :] - x) ** 2 + (i[:, None] - y) ** 2) / float(r * r))).astype(np.float32)


def ask(predictor, prompt, multimask):
    points, labels = None, None
    if "points" in prompt:
        points = np.array([p[:2] for p in prompt["points"]], np.float64)
        labels = np.array([int(p[2]) for p in prompt["points"]])
    box = np.array(prompt["box"]) if "box" in prompt else None
    mask = cone(*prompt["cone"])[None] if "cone" in prompt else None
    return predictor.predict(points, labels, box, mask, multimask_output=multimask)


def bits(mask):
    step = max(1, int(np.ceil(np.sqrt(mask.size / CELLS))))
    cut = mask[::step, ::step]
    return dict(step=step, rows=cut.shape[0], columns=cut.shape[1], hex=np.packbits(cut.reshape(-1)).tobytes().hex())


def answer(masks, scores, low):
    at = (np.arange(SAMPLES, dtype=np.uint64) * np.uint64(ODD)) % np.uint64(LOW * LOW)
    return [dict(score=round(float(s), 6), area=int(m.sum()), mask=bits(m),
                 low_res=[round(float(v), 4) for v in l.reshape(-1)[at]]) for m, s, l in zip(masks, scores, low)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mobilesam", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--segmenter")
    a = p.parse_args()
    torch.set_grad_enabled(False)
    model = official.build_mobile_sam(a.mobilesam)
    state = official.read_checkpoint(a.segmenter) if a.segmenter else synthetic(model, a.seed)
    predictor = official.sam_predictor(official.load_strict(model, state))
    stored = []
    for height, width, gray, seed, prompts in IMAGES:
        image, fnv = picture(height, width, gray, seed)
        predictor.set_image(np.array(image.convert("RGB")))
        stored.append(dict(phantom=dict(height=height, width=width, gray=gray, seed=seed, fnv=fnv),
                           prompts=[dict(p, single=answer(*ask(predictor, p, False)), multi=answer(*ask(predictor, p, True)))
                                    for p in prompts]))
    with open(a.out, "w") as f:
        json.dump(dict(schema=1, segmenter=dict(seed=a.seed), images=stored), f, separators=(",", ":"))


if __name__ == "__main__":
    main()
