"""Cuts out what a box points at, and refines it by a click: cut_out.py IMAGE OUT.png X0 Y0 X1 Y1 X Y

The image is encoded once; each prompt costs the decoder alone.
"""
import sys

import numpy as np
from PIL import Image

import isthmus


def main(path, out, *numbers):
    x0, y0, x1, y1, x, y = map(float, numbers)
    pixels = np.asarray(Image.open(path))
    with isthmus.Engine(prompts="given", low_res=True, mask_prompts=True) as engine, engine.encode(pixels) as embedding:
        first = embedding.predict(boxes=[x0, y0, x1, y1])
        better = embedding.predict(boxes=[x0, y0, x1, y1], points=[[x, y, 1]], masks=first.low_res)
    Image.fromarray(better.masks[0].astype(np.uint8) * 255).save(out)
    print(f"{first.areas[0]} pixels, then {better.areas[0]}")


if __name__ == "__main__":
    if len(sys.argv) != 9:
        sys.exit(__doc__)
    main(*sys.argv[1:])
