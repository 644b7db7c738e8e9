"""What both trainers share: averaged weights, resume state, export, time-based schedule, average precision."""
import json
import math
import os
import time
import numpy as np
import torch

NAMES = ["bone", "needle", "vessel"]
KEEP_WIDE = ("anchors", "num_points_scale", "positional_encoding_gaussian_matrix", "running_mean", "running_var")


class Average:
    """Exponential moving average of parameters and floating buffers."""

    def __init__(self, model, decay=0.9995):
        self.decay, self.steps = decay, 0
        self.pairs = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        self.steps += 1
        d = self.decay * (1 - math.exp(-self.steps / 500))
        now = model.state_dict()
        keys = [k for k, v in self.pairs.items() if v.is_floating_point() and "anchors" not in k]
        torch._foreach_lerp_([self.pairs[k] for k in keys], [now[k] for k in keys], 1 - d)
        for k in self.pairs:
            if not self.pairs[k].is_floating_point():
                self.pairs[k].copy_(now[k])


class Clock:
    """Progress of the whole schedule, counted in training seconds over all pieces."""

    def __init__(self, minutes, total_minutes, spent=0.0):
        self.start, self.piece, self.total, self.before = time.time(), minutes * 60, total_minutes * 60, spent

    def spent(self):
        return self.before + time.time() - self.start

    def progress(self):
        return min(1.0, self.spent() / self.total)

    def over(self):
        return time.time() - self.start > self.piece or self.spent() > self.total


def rate(clock, step, peak, warm=300):
    """Linear warm-up, then cosine to 1 % of the peak."""
    return peak * min(1.0, (step + 1) / warm) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * clock.progress())))


def save_state(path, **parts):
    torch.save(parts, path + ".new")
    os.replace(path + ".new", path)


def export(path, state, keys, meta):
    """Half precision safetensors of state[keys]; constants and batch statistics keep 32 bits."""
    from safetensors.torch import save_file
    out = {}
    for k in keys:
        v = state[k].detach().cpu()
        if v.is_floating_point() and not k.endswith(KEEP_WIDE):
            v = v.half()
        out[k] = v.clone().contiguous()
    save_file(out, path, metadata={"names": json.dumps(NAMES), **meta})


def box_iou(a, b):
    """[n,4] x [m,4] corner boxes -> [n,m]."""
    lt, rb = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.clip(rb - lt, 0, None).prod(2)
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
    return inter / np.maximum(area(a)[:, None] + area(b)[None] - inter, 1e-9)


def average_precision(found, truth, classes=3):
    """COCO's rule (all areas, 100 detections a frame, 101 recall points).

    found: per frame (scores, labels, boxes), best first; truth: per frame (labels, boxes).
    Returns (AP, AP50, AP75, AP50 of each class)."""
    ious = np.arange(0.5, 0.96, 0.05)
    table = np.full((classes, len(ious)), np.nan)
    for c in range(classes):
        score, hit, total = [], [], 0
        for (s, l, b), (gl, gb) in zip(found, truth):
            s, l, b = s[:100], l[:100], b[:100]
            s, b, g = s[l == c], b[l == c], gb[gl == c]
            total += len(g)
            h = np.zeros((len(ious), len(s)), bool)
            if len(g) and len(s):
                m = box_iou(b, g)
                for t, thr in enumerate(ious):
                    used = np.zeros(len(g), bool)
                    for i in range(len(s)):
                        v = np.where(used, -1, m[i])
                        j = v.argmax()
                        if v[j] >= thr:
                            used[j] = h[t, i] = True
            score.append(s)
            hit.append(h)
        if not total:
            continue
        order = np.argsort(-np.concatenate(score), kind="stable")
        h = np.concatenate(hit, 1)[:, order]
        tp = h.cumsum(1)
        recall, precision = tp / total, tp / np.arange(1, h.shape[1] + 1)
        for t in range(len(ious)):
            p = np.maximum.accumulate(precision[t][::-1])[::-1]
            at = np.searchsorted(recall[t], np.linspace(0, 1, 101), side="left")
            table[c, t] = np.where(at < len(p), p[np.minimum(at, len(p) - 1)] if len(p) else 0, 0).mean()
    return float(np.nanmean(table)), float(np.nanmean(table[:, 0])), float(np.nanmean(table[:, 5])), table[:, 0].round(4).tolist()


# native frame sizes (height, width) of held-out and demo frames
SHAPES = [(558, 422), (480, 640), (600, 600), (512, 720), (640, 480)]
HELD_OUT_SEED = 77001


def held_out(device, count):
    """Held-out frames in native sizes: list of dicts of CPU tensors (image uint8 [H,W,3], masks, boxes, labels)."""
    import bmode
    out = []
    for i, (h, w) in enumerate(SHAPES):
        gen = bmode.Generator(device, HELD_OUT_SEED + i, h, w, square_pixels=True)
        need = count // len(SHAPES)
        while need > 0:
            o = gen.frames(min(20, need))
            need -= len(o["image"])
            img = (o["image"] * 255).round().byte().permute(0, 2, 3, 1).cpu()
            for k in range(len(img)):
                ok = o["valid"][k]
                out.append({"image": img[k], "masks": o["masks"][k][ok].cpu(), "boxes": o["boxes"][k][ok].cpu(),
                            "labels": o["labels"][k][ok].cpu()})
    return out
