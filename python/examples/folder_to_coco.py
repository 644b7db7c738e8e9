"""Objects of all images in a folder as COCO results: folder_to_coco.py FOLDER OUT.json [DETECTOR SEGMENTER]

Frames are in flight while the next are decoded. An image that cannot be read or is refused is named and left out.
"""
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import isthmus


def read(paths):
    """Pixels of each file, its place as the key; what cannot be read is None, which the engine refuses."""
    for i, path in enumerate(paths, 1):
        try:
            with Image.open(path) as image:
                pixels = np.asarray(image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB"))
        except OSError as error:
            print(f"{path}: {error}", file=sys.stderr)
            pixels = None
        yield isthmus.Image(pixels, key=i)


def main(folder, out, *models):
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix in (".png", ".jpg", ".jpeg"))
    results, failed = [], 0
    with isthmus.Engine(*models) as engine:
        for path, frame in zip(paths, engine.stream(read(paths), errors="yield")):
            if isinstance(frame, isthmus.Error):
                print(f"{path}: {frame}", file=sys.stderr)
                failed += 1
            else:
                results += frame.to_coco(image_id=frame.key)
    Path(out).write_text(json.dumps(results))
    print(f"{len(paths) - failed} images, {len(results)} objects, {failed} failed")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
