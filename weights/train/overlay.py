"""Detects and segments in PyTorch, and draws: python overlay.py DETECTOR SEGMENTER OUT.png [--score S] IMAGES...

SEGMENTER may be several files joined by a comma. Prints what was found; for looking at, not for timing.
"""
import argparse
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
import common
import dfine
import mobilesam
import sheet
import train_sam


def load(detector, segmenter, dev):
    det, sam = dfine.DFine(3, 640), mobilesam.MobileSam()
    det.load_state_dict(load_file(detector))
    state = {}
    for part in segmenter.split(","):
        state.update(load_file(part))
    sam.load_state_dict(state)
    return det.to(dev).eval(), sam.to(dev).eval()


def detect(det, image, dev):
    """uint8 tensor [H,W,3] -> scores, labels, boxes in its pixels, best first."""
    h, w = image.shape[:2]
    x = image.to(dev).permute(2, 0, 1)[None].float()
    x = F.interpolate(x, size=(640, 640), mode="bilinear", antialias=True, align_corners=False).round().clamp(0, 255) / 255
    s, l, b = dfine.detections(det(x), 100)
    return s[0].cpu(), l[0].cpu(), (b[0].cpu() * torch.tensor([w, h, w, h]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("detector")
    ap.add_argument("segmenter")
    ap.add_argument("out")
    ap.add_argument("images", nargs="*")
    ap.add_argument("--score", type=float, default=0.4)
    ap.add_argument("--generated", type=int, default=0, help="also this many held-out frames, and the mask IoU with detected boxes")
    a = ap.parse_intermixed_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    det, sam = load(a.detector, a.segmenter, dev)
    items = [torch.from_numpy(np.array(Image.open(p).convert("RGB"))) for p in a.images]
    truth = common.held_out(dev, a.generated) if a.generated else []
    tiles, ious = [], []
    with torch.no_grad():
        for i, image in enumerate(items + [t["image"] for t in truth]):
            s, l, b = detect(det, image, dev)
            keep = s > a.score
            b = b.clamp(min=0)
            if i < len(items):
                print(a.images[i], [(common.NAMES[int(c)], round(float(v), 3), [round(float(t)) for t in box])
                                    for v, c, box in zip(s[:4], l[:4], b[:4])], flush=True)
            masks = train_sam.segment(sam, image, b[keep], dev)[0].cpu() if keep.any() else torch.zeros(0, *image.shape[:2], dtype=torch.bool)
            if i >= len(items):
                # every true instance: the best overlapping detection of its class, 0 if none
                t = truth[i - len(items)]
                for m, c in zip(t["masks"], t["labels"]):
                    v = train_sam.mask_iou(masks[l[keep] == c], m[None]) if (l[keep] == c).any() else torch.zeros(1)
                    ious.append(float(v.max()))
            if len(tiles) < 24:
                drawn = sheet.overlay(image.numpy(), masks.numpy(), l[keep], b[keep])
                pair = np.concatenate((image.numpy(), drawn), 1)
                tiles.append(np.array(Image.fromarray(pair).resize((600, 400))))
    if ious:
        print("mean mask IoU with detected boxes over", len(ious), "instances:", round(float(np.mean(ious)), 4))
    if a.out != "-":
        Image.fromarray(sheet.tile(tiles, 3)).save(a.out)


if __name__ == "__main__":
    main()
