"""Writes tests/golden/resize_order.json: what Pillow makes of pictures in the order in which its version resamples.

    make_resize.py OUT.json     (needs numpy and Pillow; run it with Pillow 12 and with Pillow 13)

Each run sets the hash of its own version, "12" or "13" (the major number), and keeps the other one. Pictures are
phantom(h, w, seed) of tests/golden/README.md; the hash is FNV-1a, 64 bit, of the result's bytes, rows x columns x RGB.
Pillow 13.0 resamples vertically first where the height shrinks, and by more than twice as many pixels as the width
(src/libImaging/Resample.c, ImagingResampleInner); versions before it never do.
"""
import json
import os
import sys

import PIL
from PIL import Image

import synth

# Detector (640 x 640 stretched, or smaller) and segmenter (longest side 1024, or smaller): h, w, to_h, to_w.
CASES = ((1200, 900, 640, 640), (900, 1200, 640, 640), (700, 600, 640, 640), (1000, 1000, 640, 640),
         (900, 320, 640, 640), (200, 100, 64, 64), (150, 106, 64, 64), (150, 107, 64, 64), (64, 200, 64, 64),
         (300, 64, 64, 64), (1400, 300, 1024, 219), (1200, 900, 1024, 768), (300, 40, 256, 34), (558, 422, 640, 640))


def main():
    path, version = sys.argv[1], PIL.__version__.split(".")[0]
    old = json.load(open(path))["cases"] if os.path.exists(path) else []
    cases = []
    for i, (h, w, to_h, to_w) in enumerate(CASES):
        picture = Image.fromarray(synth.phantom(h, w, i))
        made = picture.resize((to_w, to_h), Image.Resampling.BILINEAR)
        case = next((c for c in old if (c["size"], c["to"]) == ([h, w], [to_h, to_w])), {"pillow": {}})
        case["pillow"][version] = f"{synth.fnv1a64(made.tobytes()):016x}"
        cases.append({"size": [h, w], "to": [to_h, to_w], "seed": i, "pillow": dict(sorted(case["pillow"].items()))})
    with open(path, "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


main()
