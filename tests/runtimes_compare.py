"""One line about two results.json of the same frames: runtimes_compare.py REFERENCE OTHER [COUNT].

COUNT: OTHER has only that many frames of the reference's, the first ones.

Objects are paired by image, label and order of score; boxes differ in pixels, scores absolutely, masks by their IoU.
"""
import itertools
import json
import os
import sys


def runs(rle):
    """The run lengths of COCO's compressed string: six bits a character, sign-extended, each the difference to the run
    two before it."""
    counts, at, text = [], 0, rle["counts"]
    while at < len(text):
        value = shift = 0
        while True:
            c = ord(text[at]) - 48
            value |= (c & 31) << shift
            shift += 5
            at += 1
            if not c & 32:
                if c & 16:
                    value -= 1 << shift
                break
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return counts


def pixels(rle):
    """A mask as the integer whose bits are its pixels."""
    mask = at = 0
    for i, n in enumerate(runs(rle)):
        if i % 2:
            mask |= ((1 << n) - 1) << at
        at += n
    return mask


def iou(a, b):
    a, b = pixels(a), pixels(b)
    union = bin(a | b).count("1")
    return bin(a & b).count("1") / union if union else 1.0


def groups(path, frames):
    with open(path, encoding="utf-8") as file:
        objects = [o for o in json.load(file) if not frames or o["image_id"] <= frames]
    key = lambda o: (o["image_id"], o["category_id"])
    objects.sort(key=lambda o: (*key(o), -o["score"]))
    return {k: list(g) for k, g in itertools.groupby(objects, key)}


def main():
    reference, other, frames = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [0])[0])
    got = groups(other, 0)
    if reference == other or not os.path.exists(reference):
        print(sum(map(len, got.values())), "objects,", "the reference" if reference == other else "no reference", end="")
        return
    want = groups(reference, frames)
    counts = [sum(map(len, g.values())) for g in (want, got)]
    pairs = [p for k in want for p in zip(want[k], got.get(k, []))]
    if not pairs or counts != [len(pairs)] * 2:
        print(f"{counts[1]} objects, the reference has {counts[0]}", end="")
        return
    box = max(abs(x - y) for a, b in pairs for x, y in zip(a["bbox"], b["bbox"]))
    score = max(abs(a["score"] - b["score"]) for a, b in pairs)
    masks = [iou(a["segmentation"], b["segmentation"]) for a, b in pairs if "segmentation" in a and "segmentation" in b]
    print(f"{len(pairs)} objects, boxes within {box:.2g} px, scores {score:.1g}", end="")
    print(f", mask IoU {min(masks):.4f}" if masks else ", no masks", end="")


main()
