#!/usr/bin/env python3
"""What half precision costs the published detector: it against itself, by the rules of `isthmus verify`.

    half.py --dfine CHECKOUT --mobilesam CHECKOUT --detector FILE [--conf 0.4] [--max-objects 16] FOLDER...

Runs the published D-FINE twice on every image of each folder: in float32, and as `.half()` would on a GPU: weights, the
image and the result of every operator rounded to half, sums within an operator in float32. Prints per folder the F1 of
the detections at a box IoU of 0.9, to be held against that of `isthmus verify --precision fp16 --no-masks` on the same
files: with random weights both depend on which query is the 300th.
"""
import argparse
import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import compare
import official

SAME_IOU, CUT_SCORE = 0.9, 0.01     # as in apps/verify.h


def rounded(t):
    return t.half().float() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t


class Half(TorchDispatchMode):
    """Every operator's float32 results have the values of halves."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return tree_map(rounded, operator(*args, **(kwargs or {})))


class HalfModel(torch.nn.Module):
    """`model` in half; rounds the model's own weights."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        with torch.no_grad():
            for t in list(model.parameters()) + list(model.buffers()):
                t.copy_(rounded(t))

    def forward(self, image):
        with Half():
            return self.model(rounded(image))


def box_iou(a, b):
    w, h = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    both = max(w, 0) * max(h, 0)
    either = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both
    return both / either if either > 0 else 0


def kept(detections, conf, most):
    """([(label, box, score)] by falling score, whether some did not fit) of what lies above the threshold."""
    labels, boxes, scores = detections
    above = [i for i in np.argsort(-scores, kind="stable") if scores[i] > conf]
    return [(labels[i], boxes[i].astype(float), scores[i]) for i in above[:most]], len(above) > most


def compare_objects(got, want, conf, most):
    """(objects the same, objects that count): an object at the threshold or the end of a full list, on one side only,
    does not count."""
    (got, got_full), (want, want_full) = kept(got, conf, most), kept(want, conf, most)

    def cut(o, objects, full):
        return o[2] <= conf + CUT_SCORE or (full and o[2] <= objects[-1][2] + CUT_SCORE)

    free, same, uncounted = list(range(len(got))), 0, 0
    for o in want:
        close = [(box_iou(got[i][1], o[1]), i) for i in free if got[i][0] == o[0]]
        iou, i = max(close, default=(0, -1))
        if iou >= SAME_IOU:
            free.remove(i)
            same += 1
        else:
            uncounted += cut(o, got, got_full)
    uncounted += sum(cut(got[i], want, want_full) for i in free)
    return same, len(got) + len(want) - uncounted


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--dfine", required=True)
    p.add_argument("--mobilesam", required=True)
    p.add_argument("--detector", required=True)
    p.add_argument("--conf", type=float, default=0.4)
    p.add_argument("--max-objects", type=int, default=16)
    p.add_argument("folders", nargs="+")
    a = p.parse_args()
    official.check_pillow()
    single, half = (compare.Official(a.dfine, a.mobilesam, a.detector) for _ in range(2))
    half.model = HalfModel(half.model)
    for folder in a.folders:
        same = counted = 0
        paths = official.image_files(folder)
        if not paths:
            sys.exit("%s: no images" % folder)
        for path in paths:
            image = compare.read_image(path)
            s, c = compare_objects(half.detect(image), single.detect(image), a.conf, a.max_objects)
            same, counted = same + s, counted + c
        print("%s: F1 %.3f (%d of %.1f)" % (folder, 2 * same / counted if counted else 1, same, counted / 2), flush=True)


if __name__ == "__main__":
    main()
