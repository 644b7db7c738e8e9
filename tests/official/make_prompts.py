#!/usr/bin/env python3
"""Goldens of given prompts: points, boxes and masks, each prompt asked alone of the published SamPredictor.

    make_prompts.py --mobilesam CHECKOUT [--out FILE] [--isthmus BINARY] [--seed N] [--segmenter CKPT] [--images FOLDER]

Owns the list of prompts. For each it stores what SamPredictor.predict answers with multimask_output False and True: scores,
areas, sampled masks and sampled low-resolution logits. A mask prompt is a cone of logits (`cone`), exact in both languages.
With --isthmus the program answers the same prompts, all of an image in one batch, and must agree: scores within 1e-3, mask
IoU at least 0.999; exit code 1 if not. --segmenter takes a checkpoint of weights instead of the synthetic one, --images a
folder of pictures instead of the generated ones, with the first image's prompts scaled to each. Needs PyTorch, Pillow 11 or
12, and pycocotools.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import compare
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


def scaled(prompt, width, height):
    """A prompt of the first image on one of another size."""
    sx, sy = width / IMAGES[0][1], height / IMAGES[0][0]
    p = dict(prompt)
    if "points" in p:
        p["points"] = [[x * sx, y * sy, l] for x, y, l in p["points"]]
    if "box" in p:
        p["box"] = [v * (sx, sy)[k % 2] for k, v in enumerate(p["box"])]
    return p


def cases(a):
    """(name, picture, what makes it again, prompts) of each image."""
    if a.images:
        for path in official.image_files(a.images):
            im = compare.read_image(path)
            yield os.path.basename(path), im, None, [scaled(p, im.width, im.height) for p in IMAGES[0][4]]
        return
    for i, (height, width, gray, seed, prompts) in enumerate(IMAGES):
        im, fnv = picture(height, width, gray, seed)
        yield "%d.png" % i, im, dict(height=height, width=width, gray=gray, seed=seed, fnv=fnv), list(prompts)


def run_isthmus(a, segmenter, images, multimask, tmp):
    """Objects of one run by file name."""
    prompts = {}
    for name, _, _, list_ in images:
        prompts[name] = []
        for i, p in enumerate(list_):
            q = {k: v for k, v in p.items() if k != "cone"}
            if "points" in q:
                q["points"] = [[x, y, int(l)] for x, y, l in q["points"]]
            if "cone" in p:
                q["mask"] = "%s-%d.npy" % (name, i)
                np.save(os.path.join(tmp, q["mask"]), cone(*p["cone"]))
            prompts[name].append(q)
    with open(os.path.join(tmp, "prompts.json"), "w") as f:
        json.dump(prompts, f)
    out = os.path.join(tmp, "out%d" % multimask)
    cmd = [a.isthmus, "segment", os.path.join(tmp, "in"), "-o", out, "--points", os.path.join(tmp, "prompts.json"), "--segmenter", segmenter,
           "--save", "ndjson", "--quiet", "--precision", "fp32"] + ["--multimask"] * multimask
    if subprocess.run(cmd).returncode:
        sys.exit("isthmus failed")
    with open(os.path.join(out, "frames.ndjson")) as f:
        return {os.path.basename(r["file"]): r["objects"] for r in map(json.loads, f)}


def agree(name, k, multimask, got, want, worst):
    """Compares the objects of a prompt; number of disagreements."""
    bad = 0
    masks, scores, _ = want
    for m, (o, mask, score) in enumerate(zip(got, masks, scores)):
        iou, off = compare.mask_iou(compare.decode(o), mask), abs(o["mask_score"] - float(score))
        worst["iou"], worst["score"] = min(worst["iou"], iou), max(worst["score"], off)
        if iou < compare.LEAST_IOU or off > compare.MASK_SCORE_TOLERANCE or o["prompt"] != k or (multimask and o["mask_index"] != m):
            print("%s, prompt %d, mask %d: IoU %.6f, score off by %.2g" % (name, k, m, iou, off))
            bad += 1
    return bad + (len(got) != len(masks))


def replay(a, predictor, state):
    from safetensors.torch import save_file
    images, bad, worst = list(cases(a)), 0, dict(iou=1.0, score=0.0)
    with tempfile.TemporaryDirectory() as tmp:
        segmenter = a.segmenter or os.path.join(tmp, "segmenter.safetensors")
        if not a.segmenter:
            save_file({k: v.clone().contiguous() for k, v in state.items()}, segmenter)
        os.mkdir(os.path.join(tmp, "in"))
        for name, im, _, _ in images:
            im.save(os.path.join(tmp, "in", name))
        ours = [run_isthmus(a, segmenter, images, multimask, tmp) for multimask in (False, True)]
    for name, im, _, prompts in images:
        predictor.set_image(np.array(im.convert("RGB")))
        for multimask in (False, True):
            each = 3 if multimask else 1
            for k, p in enumerate(prompts):
                bad += agree(name, k, multimask, ours[multimask][name][k * each:(k + 1) * each], ask(predictor, p, multimask), worst)
    prompts = sum(len(c[3]) for c in images)
    print("%d images, %d prompts with one mask and with three: least IoU %.6f, largest difference of a score %.2g, %d disagree" % (
        len(images), prompts, worst["iou"], worst["score"], bad))
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mobilesam", required=True)
    for name in ("--out", "--isthmus", "--segmenter", "--images"):
        p.add_argument(name)
    p.add_argument("--seed", type=int, default=3)
    a = p.parse_args()
    official.check_pillow()
    torch.set_grad_enabled(False)
    model = official.build_mobile_sam(a.mobilesam)
    state = official.read_checkpoint(a.segmenter) if a.segmenter else synthetic(model, a.seed)
    predictor = official.sam_predictor(official.load_strict(model, state))
    if a.isthmus:
        sys.exit(1 if replay(a, predictor, state) else 0)
    stored = []
    for _, image, phantom, prompts in cases(a):
        predictor.set_image(np.array(image.convert("RGB")))
        stored.append(dict(phantom=phantom, prompts=[dict(p, single=answer(*ask(predictor, p, False)), multi=answer(*ask(predictor, p, True)))
                                                     for p in prompts]))
    with open(a.out, "w") as f:
        json.dump(dict(schema=1, segmenter=dict(seed=a.seed), images=stored), f, separators=(",", ":"))


if __name__ == "__main__":
    main()
