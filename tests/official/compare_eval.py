"""Compares `isthmus eval --results` with pycocotools on random ground truth and results.

Usage: compare_eval.py ISTHMUS [CASES]      compares, prints the largest difference, fails beyond 1e-4
       compare_eval.py --golden DIR         writes the cases that tests/io_coco_eval.c reads (needs no program)
Needs numpy and pycocotools. Cases: many categories, sparse ids, crowds, equal scores, empty images, all sizes, masks as
polygons and as both forms of run lengths, boxes only, masks only, more than 100 detections.
"""
import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

NAMES = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]


def text_rle(rle):
    return {"size": [int(x) for x in rle["size"]], "counts": rle["counts"].decode()}


def number_rle(rle):
    flat = coco_mask.decode(rle).flatten(order="F")
    edges = [0] + (np.flatnonzero(np.diff(np.concatenate([[0], flat]).astype(int)))).tolist() + [flat.size]
    return {"size": [int(x) for x in rle["size"]], "counts": [int(b - a) for a, b in zip(edges, edges[1:])]}


def outline(rng, box, points):
    """A polygon inside of a box, in tenths of pixels."""
    x, y, w, h = box
    angle = np.sort(rng.uniform(0, 2 * np.pi, points))
    radius = rng.uniform(.5, 1, points)
    xs, ys = x + w / 2 * (1 + radius * np.cos(angle)), y + h / 2 * (1 + radius * np.sin(angle))
    return np.round(np.stack([xs, ys], 1), 1).ravel().tolist()


def random_box(rng, w, h):
    side = np.exp(rng.uniform(np.log(4), np.log(max(w, h)), 2))
    side = np.minimum(side, [w, h])
    x, y = rng.uniform(0, [w - side[0] + .01, h - side[1] + .01])
    return [round(float(v), 1) for v in (x, y, side[0], side[1])]


def jittered(rng, box, amount):
    w, h = box[2], box[3]
    d = rng.normal(0, amount, 4) * [w, h, w, h]
    return [round(float(v), 2) for v in (box[0] + d[0], box[1] + d[1], max(1, w + d[2]), max(1, h + d[3]))]


def moved(polygons, a, b):
    """Polygons that lie in box a as they lie in box b."""
    scale, shift = [b[2] / a[2], b[3] / a[3]], [b[0], b[1]]
    return [np.round((np.reshape(p, (-1, 2)) - a[:2]) * scale + shift, 1).ravel().tolist() for p in polygons]


def outlines(rng, box):
    return [outline(rng, box, int(rng.integers(3, 12))) for _ in range(int(rng.integers(1, 3)))]


def segmentation(polygons, w, h, form):
    """(what is written, its compressed run lengths)"""
    rle = coco_mask.merge(coco_mask.frPyObjects(polygons, h, w))
    return {"polygon": polygons, "numbers": number_rle(rle), "text": text_rle(rle)}[form], rle


def random_case(seed, images=12, categories=5, per_image=6, big=False, kind="both"):
    """Ground truth and results. kind: both, boxes, masks (results without boxes), mixed (some results lack masks)."""
    rng = np.random.default_rng(seed)
    ids = sorted(rng.choice(np.arange(1, 4 * categories), categories, replace=False).tolist())
    truth = {"images": [], "annotations": [], "categories": [{"id": i, "name": f"class {i}"} for i in ids]}
    results = []
    levels = np.round(rng.random(8), 2) if seed % 2 else None  # few scores: ties
    numbers = rng.permutation(10 * images)[:images].tolist()
    for number in numbers:
        w, h = (int(v) for v in rng.integers(90, 400 if big else 200, 2))
        truth["images"].append({"id": number + 1, "file_name": f"{number:04}.png", "width": w, "height": h})
        count = 0 if rng.random() < .15 else int(rng.integers(1, per_image + 1))
        boxes = []
        for _ in range(count):
            crowd = rng.random() < .1
            box = random_box(rng, w, h)
            form = ["numbers", "text"][int(rng.integers(2))] if crowd else ["polygon", "numbers", "text"][int(rng.integers(3))]
            polygons = outlines(rng, box)
            written, rle = segmentation(polygons, w, h, form)
            category = int(rng.choice(ids[:-1] if len(ids) > 2 else ids))
            truth["annotations"].append({
                "id": len(truth["annotations"]) + 1, "image_id": number + 1, "category_id": category, "bbox": box,
                "area": float(coco_mask.area(rle)) if rng.random() < .8 else round(box[2] * box[3], 2),
                "iscrowd": int(crowd), "segmentation": written})
            boxes.append((box, category, polygons))
        if rng.random() < .1:
            continue
        for _ in range(130 if big and number == numbers[0] else int(rng.integers(0, 3 * per_image))):
            if boxes and rng.random() < .75:
                original, category, polygons = boxes[int(rng.integers(len(boxes)))]
                box = jittered(rng, original, rng.choice([0, .01, .03, .06, .2]))
                polygons = moved(polygons, original, box)
                category = category if rng.random() < .9 else int(rng.choice(ids))
            else:
                box, category = random_box(rng, w, h), int(rng.choice(ids))
                polygons = outlines(rng, box)
            score = float(rng.choice(levels)) if levels is not None else round(float(rng.random()), 4)
            result = {"image_id": number + 1, "category_id": category, "bbox": box, "score": score}
            if kind != "boxes" and not (kind == "mixed" and rng.random() < .3):
                result["segmentation"] = segmentation(polygons, w, h, "text")[0]
            if kind == "masks":
                del result["bbox"]
            results.append(result)
    if not results:
        return random_case(seed + 1000, images, categories, per_image, big, kind)
    return truth, results


def official(truth, results, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        gt = COCO()
        gt.dataset = copy.deepcopy(truth)
        gt.createIndex()
        out = {}
        for key, iou in (("boxes", "bbox"), ("masks", "segm")):
            if kind == "boxes" and key == "masks":
                out[key] = out[key + " classes"] = None
                continue
            e = COCOeval(gt, gt.loadRes(copy.deepcopy(results)), iou)
            e.evaluate()
            e.accumulate()
            e.summarize()
            out[key] = [float(v) for v in e.stats]
            p = e.eval["precision"][:, :, :, 0, 2]
            out[key + " classes"] = [float(np.mean(s[s > -1])) if (s > -1).any() else -1
                                     for s in (p[:, :, k] for k in range(p.shape[2]))]
    return out


def program(isthmus, folder, truth, results):
    for name, value in (("truth.json", truth), ("results.json", results)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    subprocess.run([isthmus, "eval", "--annotations", folder + "/truth.json", "--results", folder + "/results.json",
                    "--json", folder + "/out.json"], check=True, stdout=subprocess.DEVNULL)
    with open(folder + "/out.json") as f:
        got = json.load(f)

    def value(x):
        return -1 if x is None else x

    out = {}
    for key, field in (("boxes", "box_AP"), ("masks", "mask_AP")):
        out[key] = got[key] and [value(got[key][n]) for n in NAMES]
        out[key + " classes"] = got[key] and [value(c[field]) for c in got["classes"]]
    return out


def cases(count):  # one in ten has 130 detections in an image
    kinds = ["both", "both", "boxes", "masks", "mixed"]
    for seed in range(count):
        yield seed, kinds[seed % 5], dict(images=4 + seed % 20, categories=1 + seed % 9 * 3, per_image=1 + seed % 7,
                                          big=seed % 10 == 9)


def compare(isthmus, count):
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed, kind, size in cases(count):
            truth, results = random_case(seed, kind=kind, **size)
            want, got = official(truth, results, kind), program(isthmus, folder, truth, results)
            for key in want:
                if (want[key] is None) != (got[key] is None):
                    sys.exit(f"case {seed} ({kind}): {key}: {got[key]}, pycocotools {want[key]}")
                if want[key]:
                    difference = float(np.abs(np.subtract(want[key], got[key])).max())
                    worst = max(worst, difference)
                    if difference > 1e-4:
                        sys.exit(f"case {seed} ({kind}): {key}: {got[key]}, pycocotools {want[key]}")
    print(f"{count} cases, largest difference {worst:.2e}")


def random_polygons(seed, count):
    """Polygons in and around small images with what pycocotools makes of them."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(count):
        w, h = (int(v) for v in rng.integers(1, 60, 2))
        polygons = []
        for _ in range(int(rng.integers(1, 4))):
            p = rng.uniform(-.3, 1.3, (int(rng.integers(3, 9)), 2)) * [w, h]
            p = np.round(p * [1, 2, 10, 100][i % 4]) / [1, 2, 10, 100][i % 4]
            polygons.append(p.ravel().tolist())
        rle = coco_mask.merge(coco_mask.frPyObjects(polygons, h, w))
        out.append({"width": w, "height": h, "polygons": polygons, "counts": rle["counts"].decode(),
                    "area": int(coco_mask.area(rle)), "box": coco_mask.toBbox(rle).tolist()})
    return out


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")


def golden_case(name, seed):
    """The first case from this seed on (its parity is kept: odd ones have ties) in which every number means something."""
    kind = name if name in ("boxes", "masks", "mixed") else "both"
    many = name == "boxes"
    while True:
        truth, results = random_case(seed, images=9, categories=1 if many else 3, per_image=5, big=many, kind=kind)
        for annotation in truth["annotations"] if name == "ties" else []:
            annotation["id"] -= 1  # an id of 0 matches nothing
        expected = official(truth, results, kind)
        numbers = expected["boxes"] + (expected["masks"] or [])
        crowds = sum(annotation["iscrowd"] for annotation in truth["annotations"])
        if min(numbers) > 0 and crowds >= 2 and (not many or expected["boxes"][7] < expected["boxes"][8]):
            return {"truth": truth, "results": results, "expected": expected}
        seed += 2


def golden(folder):
    for seed, name in enumerate(("both", "ties", "boxes", "masks", "mixed")):
        write(os.path.join(folder, name + ".json"), golden_case(name, seed))
    write(os.path.join(folder, "polygons.json"), random_polygons(7, 60))


if __name__ == "__main__":
    if sys.argv[1] == "--golden":
        golden(sys.argv[2])
    else:
        compare(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
