"""Objects of all images in a folder or an object store, with Ray: ray_folder.py SOURCE OUT [--actors N] [--gpus G]

SOURCE is a folder or a URL that Ray reads (s3://bucket/frames). OUT is a folder for Parquet, or a file NAME.json for COCO
results beside NAME.images.json and, where images failed, NAME.failed.json. Each of N actors has an engine and G GPUs (0.5: two
share one). Progress is Ray's own; without a cluster (RAY_ADDRESS) it starts one on this machine.
"""
import argparse
import json
from pathlib import Path

import ray

from isthmus.ray import Predictor


def write_coco(rows, out):
    """COCO results, with image ids by the order of paths, whatever the order of the rows."""
    results, images, failed = [], [], []
    for image_id, row in enumerate(sorted(rows, key=lambda row: row["path"]), 1):
        if row["error"] is not None:
            failed.append({"file": row["path"], "error": row["error"]})
            continue
        images.append({"image_id": image_id, "file_name": row["path"], "width": row["width"], "height": row["height"]})
        masks = row["masks"] if row["masks"] is not None else [None] * len(row["boxes"])
        for box, category, score, mask in zip(row["boxes"], row["categories"], row["scores"], masks):
            x0, y0, x1, y1 = map(float, box)
            entry = {"image_id": image_id, "category_id": int(category), "bbox": [x0, y0, x1 - x0, y1 - y0],
                     "score": float(score)}
            if mask is not None:
                entry["segmentation"] = {"size": [int(n) for n in mask["size"]], "counts": mask["counts"]}
            results.append(entry)
    out.write_text(json.dumps(results))
    out.with_suffix(".images.json").write_text(json.dumps(images))
    if failed:
        out.with_suffix(".failed.json").write_text(json.dumps(failed))
    return len(images), len(results), len(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out", type=Path)
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0)
    parser.add_argument("--detector")
    parser.add_argument("--segmenter")
    a = parser.parse_args()
    options = {name: getattr(a, name) for name in ("detector", "segmenter") if getattr(a, name)}
    files = ray.data.read_binary_files(a.source, include_paths=True, file_extensions=["png", "jpg", "jpeg"])
    rows = files.map_batches(Predictor, fn_constructor_kwargs=options, batch_size=32, concurrency=a.actors, num_gpus=a.gpus)
    if a.out.suffix == ".json":
        print("%d images, %d objects, %d failed" % write_coco(rows.iter_rows(), a.out))
    else:
        rows.write_parquet(str(a.out))


if __name__ == "__main__":
    main()
