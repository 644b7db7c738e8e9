#!/usr/bin/env python3
"""Masks of everything beside the published SamAutomaticMaskGenerator (MobileSAM's checkout).

    make_everything.py --mobilesam CHECKOUT --isthmus BINARY [--segmenter CKPT] [--images FOLDER] [--cases LIST] [--device SPEC]
    make_everything.py --mobilesam CHECKOUT --out FILE

Owns the list of cases: parts of the demo's frames, of odd sizes, and parameters, crop layers 0 to 2 among them. With --isthmus the program answers
each and must agree: the same masks in the same order, IoU at least 0.999, boxes within 0.5 pixels, predicted IoU and stability
within 1e-3, points and crops alike. Masks of one side alone are named with how far the published scores are from the
thresholds: less than 1e-4 is counted and no failure; exit code 1 for others. --segmenter and --images take a checkpoint of
weights and pictures instead of the demo's. With --out the published answers are stored, for
tests/pipeline_everything. Prints the time of both. Needs PyTorch, torchvision, Pillow 11 or 12, pycocotools, opencv-python.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import compare
import official

BOX, SCORE, NEAR = 0.5, 1e-3, 1e-4
# Frame, the part of it that is the picture, parameters. The demo's weights, which know boxes only, answer points with low
# qualities.
LOW = dict(pred_iou_thresh=0.12, stability_score_thresh=0.05)
CASES = {
    "plain": ("bone-1.png", (0, 0, 420, 440), dict(LOW, points_per_side=6)),
    "batches": ("bone-3.png", (31, 0, 330, 411), dict(LOW, points_per_side=5, points_per_batch=7, stability_score_offset=0.5,
                                                      box_nms_thresh=0.5)),
    "all": ("phantom.png", (0, 0, 205, 160), dict(points_per_side=3, pred_iou_thresh=-1.0, stability_score_thresh=-1.0, box_nms_thresh=1.0)),
    "crops": ("bone-2.png", (0, 20, 400, 391), dict(LOW, points_per_side=4, crop_n_layers=1)),
    "deep": ("bone-4.png", (10, 10, 350, 421), dict(LOW, points_per_side=4, crop_n_layers=2, crop_n_points_downscale_factor=2,
                                                    crop_nms_thresh=0.6, crop_overlap_ratio=0.5)),
    "regions": ("bone-1.png", (40, 60, 401, 413), dict(LOW, points_per_side=5, min_mask_region_area=40, box_nms_thresh=0.9)),
}


def published(a, model, image, parameters):
    import mobile_sam
    generator = mobile_sam.SamAutomaticMaskGenerator(model, output_mode="coco_rle", **parameters)
    begin = time.time()
    return generator.generate(np.array(image.convert("RGB"))), time.time() - begin


def run_isthmus(a, segmenter, image, parameters, tmp):
    path, out = os.path.join(tmp, "in.png"), os.path.join(tmp, "out")
    image.save(path)
    cmd = [a.isthmus, "segment", path, "-o", out, "--everything", "--segmenter", segmenter, "--save", "ndjson", "--quiet"]
    cmd += ["--precision", a.precision, "--max-masks", "4096"] + (["--device", a.device] if a.device else [])
    for k, v in parameters.items():
        cmd += ["--" + k.replace("_", "-"), repr(v)]
    if subprocess.run(cmd).returncode:
        sys.exit("isthmus failed")
    with open(os.path.join(out, "frames.ndjson")) as f:
        line = json.loads(f.readline())
    return line["objects"], line["ms"]["total"] / 1e3


def margin(record, parameters):
    """How far the published scores of a mask are from what would have kept or dropped it."""
    iou, stability = parameters.get("pred_iou_thresh", 0.88), parameters.get("stability_score_thresh", 0.95)
    return min(abs(record["predicted_iou"] - iou), abs(record["stability_score"] - stability))


def as_record(o):
    x0, y0, x1, y1 = o["box"]
    c = o["crop_box"]
    return dict(segmentation=o["rle"], bbox=[x0, y0, x1 - x0, y1 - y0], area=o["area"], predicted_iou=o["mask_score"],
                stability_score=o["stability"], point_coords=[o["point"]], crop_box=[c[0], c[1], c[2] - c[0], c[3] - c[1]])


def key(r):
    return tuple(round(v, 6) for v in r["point_coords"][0]) + tuple(r["crop_box"])


def same(ours, theirs, worst):
    from pycocotools import mask as coco
    a, b = (coco.decode(r["segmentation"]) for r in (ours, theirs))
    iou = compare.mask_iou(a, b)
    if key(ours) != key(theirs) or iou < 0.9:
        return None
    off = max(abs(ours[k] - theirs[k]) for k in ("predicted_iou", "stability_score"))
    box = max(abs(x - y) for x, y in zip(ours["bbox"], theirs["bbox"]))
    worst["iou"], worst["score"], worst["box"] = min(worst["iou"], iou), max(worst["score"], off), max(worst["box"], box)
    return iou >= compare.LEAST_IOU and off <= SCORE and box <= BOX and a.shape == b.shape


def agree(name, ours, theirs, parameters, worst):
    """Walks both lists; (wrong ones, those that a threshold decides)."""
    wrong = near = i = k = 0
    while i < len(ours) or k < len(theirs):
        match = same(ours[i], theirs[k], worst) if i < len(ours) and k < len(theirs) else None
        if match is not None:
            if not match:
                print("%s: mask %d differs: %s and %s" % (name, i, {**ours[i], "segmentation": 0}, {**theirs[k], "segmentation": 0}))
            wrong, i, k = wrong + (not match), i + 1, k + 1
            continue
        ahead = next((d for d in range(1, 9) if k + d < len(theirs) and i < len(ours) and same(ours[i], theirs[k + d], worst) is not None), None)
        extra = theirs[k] if ahead is not None or i >= len(ours) else ours[i]
        if extra is ours[i] if i < len(ours) else False:
            i += 1
            side = "isthmus"
        else:
            k += 1
            side = "published"
        far = margin(extra, parameters)
        print("%s: only %s has the mask of %s, IoU %.6f, stability %.6f: %.2g from a threshold" % (
            name, side, key(extra), extra["predicted_iou"], extra["stability_score"], far))
        near, wrong = near + (far < NEAR), wrong + (far >= NEAR)
    return wrong, near


def cases(a):
    for name in a.cases.split(",") if a.cases else CASES:
        frame, box, parameters = CASES[name]
        if not a.images:
            yield name, compare.read_image(os.path.join(a.frames, frame)).crop(box), dict(parameters, **a.parameters)
        for path in official.image_files(a.images) if a.images else ():
            yield name + " " + os.path.basename(path), compare.read_image(path), dict(parameters, **a.parameters)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    p.add_argument("--mobilesam", required=True)
    for name in ("--out", "--isthmus", "--images", "--cases", "--device"):
        p.add_argument(name)
    p.add_argument("--segmenter", default=os.path.join(root, "weights", "mobile_sam_demo.safetensors"))
    p.add_argument("--frames", default=os.path.join(root, "apps", "frames"))
    p.add_argument("--precision", default="fp32")
    p.add_argument("--parameters", type=json.loads, default={}, help="JSON: instead of the cases' own")
    a = p.parse_args()
    official.check_pillow()
    torch.set_grad_enabled(False)
    model = official.build_mobile_sam(a.mobilesam)
    model = official.load_strict(model, official.read_checkpoint(a.segmenter))
    stored, bad, worst = [], 0, dict(iou=1.0, score=0.0, box=0.0)
    with tempfile.TemporaryDirectory() as tmp:
        for name, image, parameters in cases(a):
            theirs, published_s = published(a, model, image, parameters)
            if a.isthmus:
                ours, isthmus_s = run_isthmus(a, a.segmenter, image, parameters, tmp)
                wrong, near = agree(name, [as_record(o) for o in ours], theirs, parameters, worst)
                bad += wrong
                print("%s, %d x %d: %d masks, published %d; %d wrong, %d by a threshold; %.2f s, published %.2f" % (
                    name, image.width, image.height, len(ours), len(theirs), wrong, near, isthmus_s, published_s), flush=True)
            if a.out:
                for r in theirs:
                    r["stability_score"] = None if np.isnan(r["stability_score"]) else r["stability_score"] # of no pixels: 0 / 0
                stored.append(dict(name=name, frame=CASES[name][0], part=CASES[name][1], parameters=parameters, masks=theirs))
    if a.isthmus:
        print("least IoU %.6f, scores within %.2g, boxes within %g; %d wrong" % (worst["iou"], worst["score"], worst["box"], bad))
    if a.out:
        with open(a.out, "w") as f:
            json.dump(dict(schema=1, cases=stored), f, separators=(",", ":"), allow_nan=False)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
