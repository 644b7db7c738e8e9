#!/usr/bin/env python3
"""What torchvision's nms and batched_nms keep of generated boxes: tests/golden/nms.safetensors.

Owns the case list. A case is five integers, {boxes, kind, groups, threshold in percent, place of its first index in
`kept`}; its boxes, scores and groups follow from them (tests/op_nms.c has the recipe in C), so only the integers and the
indices that stay are stored, in order of falling score, equal scores by rising index. Groups are torchvision's own loop
over them, not its shift of coordinates, which rounds.

    make_nms.py OUT.safetensors        (made with torchvision 0.29.2 and PyTorch 2.15.0 on a CPU)
"""
import sys

import numpy as np
import torch
import torchvision
from torchvision.ops.boxes import _batched_nms_vanilla

from synth import draw24, save_safetensors

WHOLE, FLOAT, PAIRS = range(3)
CASES = [(1, WHOLE, 1, 50), (2, WHOLE, 1, 0), (33, WHOLE, 1, 10), (64, WHOLE, 3, 50), (300, WHOLE, 1, 50),
         (300, WHOLE, 5, 30), (300, FLOAT, 1, 70), (300, FLOAT, 80, 45), (257, FLOAT, 2, 0), (300, WHOLE, 1, 100),
         (400, PAIRS, 1, 50), (400, PAIRS, 2, 10), (400, PAIRS, 1, 60), (400, PAIRS, 1, 80), (1500, FLOAT, 1, 20)]


def scene(case, count, kind, groups, percent):
    """boxes [count, 4], scores [count], groups [count]."""
    k = draw24("nms.%d" % case, 4 * count, 1).reshape(count, 4).astype(np.int64)
    s = draw24("nms.%d.score" % case, count, 1).astype(np.int64)
    g = draw24("nms.%d.group" % case, count, 1).astype(np.int64) * groups >> 24
    if kind == WHOLE:
        x, y, w, h = (k >> 20).T
        s = s >> 19 << 19
    elif kind == FLOAT:
        x, y, w, h = (k / 2.0 ** 16).T
    else:                       # two and two of one size, the second moved so far that they overlap by about the threshold
        even = np.arange(count) // 2 * 2
        w, h = (k[even, 2] >> 14) + 1, (k[even, 3] >> 18) + 1
        moved = w * (100 - percent) // (100 + percent) + (k[:, 0] >> 22) - 1
        x, y = np.where(np.arange(count) % 2, moved, 0), 64 * even
    boxes = np.stack([x, y, x + w, y + h], 1).astype(np.float64).astype(np.float32)
    return boxes, (s / 2.0 ** 24).astype(np.float32), g


def main():
    kept, cases = [], []
    for i, (count, kind, groups, percent) in enumerate(CASES):
        boxes, scores, group = scene(i, count, kind, groups, percent)
        b, s = torch.from_numpy(boxes), torch.from_numpy(scores)
        if groups == 1:
            stay = torchvision.ops.nms(b, s, percent / 100).numpy()
        else:
            stay = _batched_nms_vanilla(b, s, torch.from_numpy(group), percent / 100).numpy()
        order = np.lexsort((stay, -scores[stay]))
        if groups == 1:
            assert (stay[order] == stay).all()
        cases.append((count, kind, groups, percent, len(kept)))
        kept += stay[order].tolist()
        print("%d boxes, kind %d, %d groups, %d %%: %d stay" % (*cases[-1][:4], len(stay)))
    save_safetensors(sys.argv[1], {"cases": np.array(cases, np.int32), "kept": np.array(kept, np.int32)})


if __name__ == "__main__":
    main()
