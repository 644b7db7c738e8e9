"""Makes what weights/ ships: python package.py [--merge FOLDER] [--plot FOLDER] [--demo DEVICE] [--held-out OUT COUNT DEVICE]

--merge joins the segmenter's two parts of a trainer's output folder and writes SHA256SUMS; --plot draws the losses
(matplotlib); --demo writes the demo frames with COCO ground truth (seeds of their own, neither trained on nor held out);
--held-out writes frames of the held-out seeds in the same form, for `isthmus eval`.
"""
import argparse
import hashlib
import json
import os
import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
import common

WEIGHTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DETECTOR, SEGMENTER = "dfine_n_demo.safetensors", "mobile_sam_demo.safetensors"


def read(path):
    with safe_open(path, "pt") as f:
        return {k: f.get_tensor(k) for k in f.keys()}, f.metadata()


def merge(folder):
    det, meta = read(os.path.join(folder, DETECTOR))
    save_file(det, os.path.join(WEIGHTS, DETECTOR), metadata=meta)
    os.chmod(os.path.join(WEIGHTS, DETECTOR), 0o644)
    sam = {}
    for part in ("image_encoder", "decoders"):
        tensors, meta = read(os.path.join(folder, f"mobile_sam_{part}.safetensors"))
        sam.update(tensors)
    save_file(sam, os.path.join(WEIGHTS, SEGMENTER), metadata=meta)
    os.chmod(os.path.join(WEIGHTS, SEGMENTER), 0o644)
    with open(os.path.join(WEIGHTS, "SHA256SUMS"), "w") as out:
        for name in (DETECTOR, SEGMENTER):
            with open(os.path.join(WEIGHTS, name), "rb") as f:
                out.write(f"{hashlib.sha256(f.read()).hexdigest()}  {name}\n")


def plot(folder):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    logs = [json.load(open(os.path.join(folder, f"{n}_log.json"))) for n in ("dfine", "sam")]
    fig, axes = plt.subplots(1, 3, figsize=(11, 3))
    for ax, log, key, title in ((axes[0], logs[0], "main", "D-FINE-N: loss of the matched queries"),
                                (axes[1], logs[1], "loss", "MobileSAM: loss"), (axes[2], logs[1], "iou", "MobileSAM: training mask IoU")):
        rows = [r for r in log if key in r]
        for side in sorted({r["side"] for r in rows}):
            part = [r for r in rows if r["side"] == side]
            ax.plot([r["minute"] for r in part], [r[key] for r in part], label=f"input {side}")
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("training minutes")
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(os.path.join(WEIGHTS, "training.png"), dpi=70)


def coco_rle(mask):
    """Uncompressed COCO run lengths, column by column."""
    flat = mask.T.reshape(-1).astype(np.uint8)
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate(([0], edges, [flat.size]))).tolist()
    return {"size": list(mask.shape), "counts": ([0] if flat[0] else []) + runs}


def write_frames(folder, frames):
    """PNG frames and annotations.json (COCO; category ids 1..3). Every third frame is written as 8-bit gray."""
    os.makedirs(folder, exist_ok=True)
    images, notes = [], []
    for i, f in enumerate(frames):
        name = f"frame-{i + 1:03d}.png"
        img = Image.fromarray(f["image"].numpy())
        if i % 3 == 0:
            img = img.convert("L")
        img.save(os.path.join(folder, name), optimize=True)
        h, w = f["image"].shape[:2]
        images.append({"id": i + 1, "file_name": name, "width": w, "height": h})
        for m, b, l in zip(f["masks"], f["boxes"].tolist(), f["labels"].tolist()):
            notes.append({"id": len(notes) + 1, "image_id": i + 1, "category_id": l + 1, "iscrowd": 0, "area": int(m.sum()),
                          "bbox": [b[0], b[1], b[2] - b[0], b[3] - b[1]], "segmentation": coco_rle(m.numpy())})
    with open(os.path.join(folder, "annotations.json"), "w") as out:
        json.dump({"info": {"description": "generated B-mode frames with exact ground truth"}, "images": images, "annotations": notes,
                   "categories": [{"id": i + 1, "name": n} for i, n in enumerate(common.NAMES)]}, out, separators=(",", ":"))


def demo(device):
    """Twelve frames with at least one instance each, and one empty one."""
    import bmode
    frames = []
    for i, (h, w) in enumerate([(372, 282), (320, 426), (400, 400)]):
        o = bmode.Generator(device, 31 + i, h, w, square_pixels=True).frames(8)
        img = (o["image"] * 255).round().byte().permute(0, 2, 3, 1).cpu()
        some = [k for k in range(8) if o["valid"][k].any()][:4]
        for k in some + ([k for k in range(8) if not o["valid"][k].any()][:1] if i == 2 else []):
            v = o["valid"][k]
            frames.append({"image": img[k], "masks": o["masks"][k][v].cpu(), "boxes": o["boxes"][k][v].cpu(), "labels": o["labels"][k][v].cpu()})
    write_frames(os.path.join(WEIGHTS, "demo"), frames)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--merge")
    ap.add_argument("--plot")
    ap.add_argument("--demo")
    ap.add_argument("--held-out", nargs=3)
    a = ap.parse_args()
    if a.merge:
        merge(a.merge)
    if a.plot:
        plot(a.plot)
    if a.demo:
        demo(a.demo)
    if a.held_out:
        write_frames(a.held_out[0], common.held_out(a.held_out[2], int(a.held_out[1])))


if __name__ == "__main__":
    main()
