#!/usr/bin/env python3
"""Black-box comparison of isthmus with the published PyTorch code: same files in, same boxes, scores and masks out.

    compare.py --dfine CHECKOUT [--mobilesam CHECKOUT] [--sam CHECKOUT] --detector CKPT [--segmenter CKPT] --images DIR
               [--isthmus BINARY] [--conf 0.4] [--max-objects 16] [--device SPEC] [--write-golden FILE]
               [--resize-order auto|horizontal|pillow13] [--stored-constants]

A segmenter is MobileSAM, or SAM with its ViT-B encoder (facebookresearch/segment-anything): its tensors say which.

The published side is used as its own inference tools use it: Pillow reads and resizes, the deployed D-FINE and its own
post-processing give 300 results, SamPredictor gets each box that is kept (unclipped float pixels, one mask per box).
With --isthmus the binary runs on the same folder and must agree: same detections above the threshold, boxes within
0.5 pixels, scores within 1e-3, mask IoU at least 0.999. A detection whose score lies within 1e-3 of the threshold (or of
the last one that fits --max-objects) may be on either side: it is reported and does not fail. Exit code 1 on disagreement.
With --write-golden the published results are stored as JSON.

Needs PyTorch, torchvision, Pillow 11 or 12 (13 with --resize-order pillow13), pycocotools and what the two repositories import.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from pycocotools import mask as coco

import official

BOX_TOLERANCE, SCORE_TOLERANCE, LEAST_IOU, MASK_SCORE_TOLERANCE = 0.5, 1e-3, 0.999, 1e-3


def read_image(path):
    """8-bit RGB as isthmus defines it: gray replicated, alpha dropped, 16-bit scaled by round(v / 257)."""
    im = Image.open(path)
    if im.mode.startswith("I"):
        v = np.asarray(im).astype(np.int64)
        return Image.fromarray(((v + 128) // 257).astype(np.uint8)).convert("RGB")
    if im.mode == "LA":
        return im.getchannel("L").convert("RGB")
    return im.convert("RGB")


class Official:
    """The published chain for one pair of checkpoints."""

    def __init__(self, dfine, mobilesam, detector, segmenter=None, dtype=torch.float32, sam=None):
        state = detector if isinstance(detector, dict) else official.read_checkpoint(detector)
        self.size, self.classes = official.recognise_dfine(state)
        model, self.post = official.build_dfine(dfine, self.size, self.classes)
        self.dtype, self.model = dtype, official.load_strict(model, state).to(dtype).deploy()  # deploy() fixes constants in this type
        self.selection = None
        self.model.decoder.enc_score_head.register_forward_hook(self._see_selection)
        self.predictor = None
        if segmenter is not None:
            state = segmenter if isinstance(segmenter, dict) else official.read_checkpoint(segmenter)
            vit = "image_encoder.pos_embed" in state
            model = official.build_sam_vit_b(sam) if vit else official.build_mobile_sam(mobilesam)
            self.predictor = official.sam_predictor(official.load_strict(model, state))

    def _see_selection(self, module, inputs, scores):
        top = torch.topk(scores[0].max(-1).values, 301).values
        self.selection = float(top[299] - top[300])

    @torch.no_grad()
    def detect(self, image):
        """labels [300], boxes [300,4] in pixels, scores [300], falling."""
        import torchvision.transforms as T
        x = T.Compose([T.Resize((640, 640)), T.ToTensor()])(image)[None]
        size = torch.tensor([[image.width, image.height]])
        r = self.post({k: v for k, v in self.model(x.to(self.dtype)).items() if k in ("pred_logits", "pred_boxes")}, size)[0]
        return r["labels"].numpy(), r["boxes"].double().numpy().astype(np.float32), r["scores"].double().numpy()

    @torch.no_grad()
    def segment(self, image, boxes):
        """Per box: mask logits [H,W] and the model's own score."""
        self.predictor.set_image(np.array(image))
        out = []
        for b in boxes:
            logits, score, _ = self.predictor.predict(box=b, multimask_output=False, return_logits=True)
            out.append((logits[0], float(score[0])))
        return out

    def run(self, path_or_image, conf, max_objects):
        image = path_or_image if isinstance(path_or_image, Image.Image) else read_image(path_or_image)
        labels, boxes, scores = self.detect(image)
        above = int((scores > conf).sum())
        keep = min(above, max_objects)
        objects = [dict(label=int(labels[i]), score=float(scores[i]), box=[float(v) for v in boxes[i]]) for i in range(len(scores))]
        if self.predictor is not None and keep:
            for o, (logits, score) in zip(objects, self.segment(image, boxes[:keep])):
                o["mask"], o["mask_score"] = logits > 0, score
                wide = int((logits > -1).sum())
                o["stability"] = float((logits > 1).sum() / wide) if wide else 0.0
        return dict(width=image.width, height=image.height, kept=objects[:keep], rest=objects[keep:], dropped=above - keep)


def mask_iou(a, b):
    union = int((a | b).sum())
    return 1.0 if union == 0 else int((a & b).sum()) / union


def decode(obj):
    r = obj.get("rle")
    return None if r is None else coco.decode(dict(size=r["size"], counts=r["counts"].encode())).astype(bool)


def near(a, b):
    return (a["label"] == b["label"] and abs(a["score"] - b["score"]) <= SCORE_TOLERANCE
            and max(abs(p - q) for p, q in zip(a["box"], b["box"])) <= BOX_TOLERANCE)


def distance(a, b):
    """How far two detections of one label are apart: 1 is the limit."""
    if a["label"] != b["label"]:
        return np.inf
    return max(max(abs(p - q) for p, q in zip(a["box"], b["box"])) / BOX_TOLERANCE, abs(a["score"] - b["score"]) / SCORE_TOLERANCE)


def compare_frame(ref, frame, conf, max_objects, masks):
    """(row of numbers, notes that do not fail, failures) for one image."""
    notes, bad = [], []
    kept, ours = ref["kept"], frame["objects"]
    if (frame["width"], frame["height"]) != (ref["width"], ref["height"]):
        bad.append("size %dx%d, want %dx%d" % (frame["width"], frame["height"], ref["width"], ref["height"]))
        return None, notes, bad
    if len(ours) > max_objects:
        bad.append("%d objects, limit %d" % (len(ours), max_objects))
    if any(a["score"] < b["score"] for a, b in zip(ours, ours[1:])):
        bad.append("objects are not in falling order of score")
    limits = [conf] + ([kept[-1]["score"]] if ref["dropped"] else [])
    free, pairs = list(range(len(ours))), []
    for n, r in enumerate(kept):
        best = min(free, key=lambda i: distance(r, ours[i]), default=None)
        if best is not None and distance(r, ours[best]) <= 1:
            free.remove(best)
            pairs.append((r, ours[best]))
        elif min(abs(r["score"] - v) for v in limits) <= SCORE_TOLERANCE:
            notes.append("object %d at the threshold (%.5f) is missing" % (n, r["score"]))
        else:
            d = "nothing left" if best is None else "closest is %.3g times the limit away" % distance(r, ours[best])
            bad.append("object %d (label %d, score %.5f) is missing: %s" % (n, r["label"], r["score"], d))
    for i in free:
        at_limit = min(abs(ours[i]["score"] - v) for v in limits) <= SCORE_TOLERANCE
        if at_limit and any(near(r, ours[i]) for r in ref["rest"]):
            notes.append("object at the threshold (%.5f) is extra" % ours[i]["score"])
        else:
            bad.append("object (label %d, score %.5f) is extra" % (ours[i]["label"], ours[i]["score"]))
    row = dict(objects=len(kept), found=len(pairs), box=0.0, score=0.0, iou=1.0, mask_score=0.0)
    for r, o in pairs:
        row["box"] = max(row["box"], max(abs(p - q) for p, q in zip(r["box"], o["box"])))
        row["score"] = max(row["score"], abs(r["score"] - o["score"]))
        if not masks:
            continue
        m = decode(o)
        if m is None or m.shape != r["mask"].shape:
            bad.append("object with score %.5f has no mask of the image's size" % o["score"])
            continue
        iou = mask_iou(m, r["mask"])
        row["iou"] = min(row["iou"], iou)
        row["mask_score"] = max(row["mask_score"], abs(o["mask_score"] - r["mask_score"]))
        if iou < LEAST_IOU:
            bad.append("object with score %.5f: mask IoU %.6f" % (o["score"], iou))
        if abs(o["mask_score"] - r["mask_score"]) > MASK_SCORE_TOLERANCE:
            bad.append("object with score %.5f: mask score %.5f, want %.5f" % (o["score"], o["mask_score"], r["mask_score"]))
        if "area" in o and o["area"] != int(m.sum()):
            bad.append("object with score %.5f: area %d, its mask has %d" % (o["score"], o["area"], int(m.sum())))
    return row, notes, bad


def run_isthmus(a):
    """frames.ndjson of one run, by file name."""
    with tempfile.TemporaryDirectory() as out:
        cmd = [a.isthmus, "predict", a.images, "-o", out, "--detector", a.detector, "--conf", repr(a.conf), "--max-objects", str(a.max_objects),
               "--precision", a.precision, "--resize-order", a.resize_order, "--save", "ndjson,json,masks" if a.segmenter else "ndjson,json", "--quiet"]
        cmd += ["--segmenter", a.segmenter] if a.segmenter else ["--no-masks"]
        cmd += ["--device", a.device] if a.device else []
        cmd += ["--stored-constants"] if a.stored_constants else []
        rc = subprocess.run(cmd).returncode
        if rc:
            sys.exit("isthmus ended with exit code %d" % rc)
        with open(os.path.join(out, "frames.ndjson")) as f:
            frames = [json.loads(line) for line in f]
    return {os.path.basename(f["file"]): f for f in frames}


def rle_text(mask):
    return coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()


def golden(ref, full_rle=True, step=1):
    """The part of a result that is stored. A mask is kept as hexadecimal bits of every step-th row and column, row by
    row, high bit first, and as RLE when the image is small."""
    objects = []
    for o in ref["kept"]:
        g = dict(label=o["label"], score=round(o["score"], 7), box=[round(v, 3) for v in o["box"]])
        if "mask" in o:
            m = o["mask"]
            g.update(mask_score=round(o["mask_score"], 6), stability=round(o["stability"], 5), area=int(m.sum()),
                     mask=dict(step=step, rows=len(m[::step]), columns=len(m[0, ::step]), hex=np.packbits(m[::step, ::step].reshape(-1)).tobytes().hex()))
            if full_rle:
                g["rle"] = dict(size=list(m.shape), counts=rle_text(m))
        objects.append(g)
    return dict(width=ref["width"], height=ref["height"], dropped=ref["dropped"],
                next_score=round(ref["rest"][0]["score"], 7) if ref["rest"] else 0, objects=objects)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--dfine", "--detector", "--images"):
        p.add_argument(name, required=True)
    for name in ("--mobilesam", "--sam", "--segmenter", "--isthmus", "--write-golden", "--device"):
        p.add_argument(name)
    p.add_argument("--precision", default="fp32")
    p.add_argument("--stored-constants", action="store_true", help="for files of half or bfloat16: the published code reads their anchors")
    p.add_argument("--resize-order", default="auto", choices=sorted(official.PILLOW_ORDERS))
    p.add_argument("--conf", type=float, default=0.4)
    p.add_argument("--max-objects", type=int, default=16)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    official.check_pillow(a.resize_order)
    torch.set_num_threads(a.threads)
    files = official.image_files(a.images)
    if not files:
        sys.exit("no images in " + a.images)
    chain = Official(a.dfine, a.mobilesam, a.detector, a.segmenter, sam=a.sam)
    print("D-FINE-%s, %d classes, %d images" % (chain.size.upper(), chain.classes, len(files)))
    frames = run_isthmus(a) if a.isthmus else {}
    stored, failed = [], 0
    if a.isthmus:
        print("%-28s %8s %8s %10s %10s %10s %10s" % ("image", "objects", "found", "box px", "score", "mask IoU", "mask score"))
    for path in files:
        name = os.path.basename(path)
        ref = chain.run(path, a.conf, a.max_objects)
        if a.write_golden:
            step = max(1, int(np.ceil(np.sqrt(ref["width"] * ref["height"] / 20000))))
            stored.append(dict(golden(ref, ref["width"] * ref["height"] <= 20000, step), file=name))
        if not a.isthmus:
            print("%-28s %d objects above %g, %d dropped" % (name, len(ref["kept"]), a.conf, ref["dropped"]))
            continue
        if name not in frames:
            row, notes, bad = None, [], ["isthmus wrote no line for this image"]
        else:
            row, notes, bad = compare_frame(ref, frames[name], a.conf, a.max_objects, bool(a.segmenter))
        if row:
            print("%-28s %8d %8d %10.2g %10.2g %10.6f %10.2g%s" % (name, row["objects"], row["found"], row["box"], row["score"], row["iou"],
                                                                row["mask_score"], "  FAIL" if bad else ""))
        else:
            print("%-28s FAIL" % name)
        for n in notes:
            print("    note: " + n)
        for b in bad:
            print("    FAIL: " + b)
        failed += bool(bad)
    if a.write_golden:
        with open(a.write_golden, "w") as f:
            json.dump(dict(schema=1, conf=a.conf, max_objects=a.max_objects, images=stored), f, separators=(",", ":"))
    if a.isthmus:
        print("%d of %d images agree" % (len(files) - failed, len(files)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
