"""Draws a sheet of generated frames with their boxes and masks: python sheet.py OUT.png [COUNT] [SEED] [DEVICE]"""
import sys
import numpy as np
import torch
from PIL import Image
import bmode

COLOURS = np.array([(255, 60, 60), (60, 255, 60), (60, 140, 255)])


def overlay(image, masks, labels, boxes):
    """uint8 [H,W,3] with masks tinted and boxes drawn."""
    out = image.copy()
    for m, l, box in zip(masks, labels, boxes):
        c = COLOURS[int(l)]
        out[m] = (out[m] * 0.4 + c * 0.6).astype(np.uint8)
        x1, y1, x2, y2 = [int(v) for v in box]
        h, w = out.shape[:2]
        x1, y1, x2, y2 = max(x1, 0), max(y1, 0), min(x2, w) - 1, min(y2, h) - 1
        if x2 > x1 and y2 > y1:
            out[y1:y2, [x1, x2]] = c
            out[[y1, y2], x1:x2] = c
    return out


def tile(pairs, columns):
    while len(pairs) % columns:
        pairs.append(np.zeros_like(pairs[0]))
    return np.concatenate([np.concatenate(pairs[i:i + columns], 1) for i in range(0, len(pairs), columns)], 0)


def main():
    count, seed = int(sys.argv[2]) if len(sys.argv) > 2 else 16, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    dev = sys.argv[4] if len(sys.argv) > 4 else ("cuda" if torch.cuda.is_available() else "cpu")
    o = bmode.Generator(dev, seed, 400, 302, square_pixels=True).frames(count)
    img = (o["image"] * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    pairs = []
    for i in range(count):
        v = o["valid"][i].cpu()
        pairs.append(np.concatenate((img[i], overlay(img[i], o["masks"][i].cpu()[v].numpy(), o["labels"][i].cpu()[v],
                                                     o["boxes"][i].cpu()[v])), 1))
    Image.fromarray(tile(pairs, 4)).save(sys.argv[1])


if __name__ == "__main__":
    main()
