"""Ids that last over a folder taken as a sequence: track.py FOLDER

One line for each object: file, track id, name, box.
"""
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import isthmus


def main(folder):
    paths = sorted(Path(folder).glob("*.png"))
    images = (isthmus.Image(np.asarray(Image.open(path)), key=path.name) for path in paths)
    with isthmus.Engine(segmenter=None, match="tracks") as engine:
        for frame in engine.stream(images):
            for o in frame:
                print(frame.key, o.match, o.name, *(f"{v:.1f}" for v in o.box))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
