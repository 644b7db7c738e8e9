"""Trains MobileSAM with box prompts on generated frames, in pieces that resume: see ../README.md for the command lines.

Losses on mask 0 at the frame's own resolution: binary cross entropy (weighted towards the prompt's box) and dice; squared
error of the predicted IoU; the three other masks get the same losses at low resolution with a small weight. Prompts are
true boxes with every side moved by up to a tenth of the box, some exact.
"""
import argparse
import json
import os
import time
import numpy as np
import torch
import torch.nn.functional as F
import bmode
import common
import mobilesam

PROMPTS = 2                      # prompts per frame in training
ASPECTS = [(1.0, 0.75), (1.0, 1.0), (0.75, 1.0), (0.6, 1.0), (1.0, 0.75)]        # height, width over the longer side


def prompts(f, dev):
    """Random valid instances: boxes [B*P,4] jittered, masks [B*P,h,w], image rows, valid."""
    b, _, h, w = f["masks"].shape
    order = (torch.rand(b, bmode.SLOTS, device=dev) + f["valid"].float()).topk(PROMPTS, 1)[1]
    row = torch.arange(b, device=dev)[:, None].expand(-1, PROMPTS)
    box, valid = f["boxes"][row, order].flatten(0, 1), f["valid"][row, order].flatten()
    mask = f["masks"][row, order].flatten(0, 1)
    side = torch.cat((box[:, 2:] - box[:, :2], box[:, 2:] - box[:, :2]), 1)
    size = (torch.rand(len(box), 1, device=dev) - 0.2).clamp(min=0) / 0.8 * 0.1
    moved = box + (torch.rand_like(box) * 2 - 1) * (size * side + 20 * size)
    limit = torch.tensor([w, h, w, h], device=dev)
    moved = torch.minimum(moved.clamp(min=0), limit)
    return torch.where(valid[:, None], moved, limit * torch.tensor([0.3, 0.3, 0.7, 0.7], device=dev)), mask, row.flatten(), valid


def mirrored(f):
    w = f["image"].shape[-1]
    b = f["boxes"]
    b = torch.stack((w - b[..., 2], b[..., 1], w - b[..., 0], b[..., 3]), -1)
    return {**f, "image": f["image"].flip(-1), "masks": f["masks"].flip(-1), "boxes": b}


def mask_loss(logits, target, weight):
    """Cross entropy + dice, per prompt [N]. logits, target, weight [N,...,h,w]."""
    axes = (-2, -1)
    bce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    bce = (bce * weight).sum(axes) / weight.sum(axes)
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum(axes) + 1) / (p.sum(axes) + target.sum(axes) + 1)
    return 2 * bce + dice


def step_loss(model, f, side, dev):
    """f: frames whose longer side may differ from the input side (they are resized)."""
    h, w = f["image"].shape[-2:]
    scale = side / max(h, w)
    hh, ww = int(h * scale + 0.5), int(w * scale + 0.5)
    x = f["image"]
    if scale != 1:
        x = F.interpolate(x, size=(hh, ww), mode="bilinear", align_corners=False)
    x = model.normalise(x, side).contiguous(memory_format=torch.channels_last)
    box, mask, row, valid = prompts(f, dev)
    with torch.autocast(dev.type, torch.bfloat16):
        low, iou = model(x, box * scale, row)
    full = max(h, w)
    target = F.pad(mask, (0, full - w, 0, full - h)).float()
    logits = F.interpolate(low[:, :1].float(), size=(full, full), mode="bilinear", align_corners=False)[:, 0]
    ys, xs = torch.arange(full, device=dev)[:, None] + 0.5, torch.arange(full, device=dev)[None] + 0.5
    grow = 0.1 * (box[:, 2:] - box[:, :2]) + 4
    lo, hi = (box[:, :2] - grow)[:, :, None, None], (box[:, 2:] + grow)[:, :, None, None]
    inside = (xs > lo[:, 0]) & (xs < hi[:, 0]) & (ys > lo[:, 1]) & (ys < hi[:, 1])
    weight = torch.where(inside, 1.0, 0.1)
    v = valid.float()
    count = v.sum().clamp(min=1)
    loss = (mask_loss(logits, target, weight) * v).sum() / count
    small = F.interpolate(target[:, None], size=low.shape[-2:], mode="bilinear", antialias=True, align_corners=False)
    other = mask_loss(low[:, 1:].float(), small.expand(-1, 3, -1, -1), torch.ones_like(small).expand(-1, 3, -1, -1)).mean(1)
    with torch.no_grad():
        hit = (logits > 0) & (target > 0.5)
        true = hit.sum((1, 2)) / ((logits > 0) | (target > 0.5)).sum((1, 2)).clamp(min=1)
    guess = ((iou.float() - true[:, None]) ** 2).mean(1)
    total = loss + 0.1 * (other * v).sum() / count + (guess * v).sum() / count
    return total, (true * v).sum() / count


def segment(model, image, boxes, dev, side=1024):
    """The inference path: uint8 image [H,W,3], boxes [N,4] in its pixels -> masks [N,H,W] bool, predicted IoU [N]."""
    h, w = image.shape[:2]
    scale = side / max(h, w)
    hh, ww = int(h * scale + 0.5), int(w * scale + 0.5)
    x = image.to(dev).permute(2, 0, 1)[None].float()
    x = F.interpolate(x, size=(hh, ww), mode="bilinear", antialias=True, align_corners=False).round().clamp(0, 255) / 255
    box = boxes.to(dev).float() * torch.tensor([ww / w, hh / h, ww / w, hh / h], device=dev)
    low, iou = model(model.normalise(x, side), box, torch.zeros(len(box), dtype=torch.long, device=dev))
    m = F.interpolate(low[:, :1].float(), size=(side, side), mode="bilinear", align_corners=False)[..., :hh, :ww]
    return F.interpolate(m, size=(h, w), mode="bilinear", align_corners=False)[:, 0] > 0, iou[:, 0]


def mask_iou(a, b):
    return ((a & b).sum((1, 2)) / (a | b).sum((1, 2)).clamp(min=1)).float()


def evaluate(model, frames, dev):
    """Mean mask IoU with true boxes as prompts: over all instances, and by class."""
    model.eval()
    got = [[], [], []]
    with torch.no_grad():
        for f in frames:
            if len(f["labels"]):
                m, _ = segment(model, f["image"], f["boxes"], dev)
                for l, v in zip(f["labels"].tolist(), mask_iou(m, f["masks"].to(dev)).tolist()):
                    got[l].append(v)
    every = [v for g in got for v in g]
    return float(np.mean(every)), [round(float(np.mean(g)), 4) if g else None for g in got]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=9.0, help="length of this piece")
    ap.add_argument("--total-minutes", type=float, default=27.0, help="length of the whole schedule")
    ap.add_argument("--state", default="sam_state.pt", help="resume state, read if there and written at the end")
    ap.add_argument("--out", default=".")
    ap.add_argument("--start", help="safetensors state dict to begin from (fine-tuning)")
    ap.add_argument("--spent", type=float, default=0.0, help="with --start: minutes of the schedule already spent")
    ap.add_argument("--batch", default="0:48,0.4:16", help="progress:frames steps")
    ap.add_argument("--sizes", default="0:512,0.4:1024", help="progress:input side steps")
    ap.add_argument("--frame", type=int, default=640, help="longer side of generated frames, at most (the input side if that is less)")
    ap.add_argument("--peak", type=float, default=6e-4)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--frames", type=int, default=500, help="held-out frames for the evaluation at the end")
    ap.add_argument("--steps", type=int, default=0, help="stop after so many steps (tests)")
    ap.add_argument("--compile", action="store_true")
    a = ap.parse_args()
    dev = torch.device(a.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(2)
    model = mobilesam.MobileSam().to(dev, memory_format=torch.channels_last)
    used = [(n, p) for n, p in model.named_parameters() if "norm_head" not in n and "image_encoder.head" not in n
            and "mask_downscaling" not in n]
    opt = torch.optim.AdamW([{"params": [p for _, p in used if p.dim() > 1], "weight_decay": 0.01},
                             {"params": [p for _, p in used if p.dim() <= 1], "weight_decay": 0.0}], lr=a.peak, fused=dev.type == "cuda")
    spent, step, log = a.spent * 60, 0, []
    if os.path.exists(a.state):
        s = torch.load(a.state, map_location=dev)
        model.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        avg = common.Average(model)
        avg.pairs, avg.steps = s["avg"], s["updates"]
        spent, step, log = s["spent"], s["step"], s["log"]
    else:
        if a.start:
            from safetensors.torch import load_file
            model.load_state_dict(load_file(a.start))
        avg = common.Average(model, 0.999)
    avg.decay = 0.999
    clock = common.Clock(a.minutes, a.total_minutes, spent)
    torch.manual_seed(2000 + step)
    plan = lambda text: [(float(x.split(":")[0]), int(x.split(":")[1])) for x in text.split(",")]
    at = lambda steps: [v for p, v in steps if clock.progress() >= p][-1]
    sizes, batches = plan(a.sizes), plan(a.batch)
    encoder = model.image_encoder
    if a.compile:
        encoder.forward = torch.compile(encoder.forward, dynamic=False)
    gens, f, began, first = {}, None, time.time(), step
    running = torch.zeros(3, device=dev)         # two sums and the number of steps in them
    one = torch.ones((), device=dev)
    while not clock.over() and not (a.steps and step - first >= a.steps):
        side, batch = at(sizes), at(batches)
        full = min(side, a.frame)
        shape = [int(full * v) // 2 * 2 for v in ASPECTS[step // 2 % len(ASPECTS)]]
        key = (shape[0], shape[1])
        if key not in gens:
            gens[key] = bmode.Generator(dev, 9000 + step, shape[0], shape[1], square_pixels=True)
        # every batch is used twice, the second time mirrored and with other prompts
        f = mirrored(f) if step % 2 and f is not None and len(f["image"]) == batch else gens[key].frames(batch)
        for group in opt.param_groups:
            group["lr"] = common.rate(clock, step, a.peak)
        model.train()
        loss, iou = step_loss(model, f, side, dev)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in used], 1.0)
        for _, p in used:
            if p.grad is not None:
                p.grad.nan_to_num_(0, 0, 0)
        opt.step()
        avg.update(model)
        running += torch.stack((loss.detach(), iou.detach(), one))
        step += 1
        if step % 100 == 0 or a.steps:
            mean = (running[:2] / running[2]).tolist()
            running.zero_()
            row = {"minute": round(clock.spent() / 60, 2), "step": step, "side": side, "loss": round(mean[0], 4),
                   "iou": round(mean[1], 4), "rate": opt.param_groups[0]["lr"]}
            log.append(row)
            if step % 300 == 0 or a.steps:
                print("sam", json.dumps(row), f"{(step - first) / (time.time() - began):.2f} it/s, norm {norm.item():.2f}", flush=True)
    common.save_state(a.state, model=model.state_dict(), opt=opt.state_dict(), avg=avg.pairs, updates=avg.steps, spent=clock.spent(),
                      step=step, log=log)
    state = dict(avg.pairs)
    meta = {"provenance": "trained by this project on procedurally generated B-mode frames only", "architecture": "MobileSAM (TinyViT-5M)",
            "steps": str(step), "licence": "same as the project", "use": "not for clinical use",
            "trained": "box prompts, single mask; point and mask prompts were not trained"}
    for part in ("image_encoder", "decoders"):
        keys = [k for k in state if k.startswith("image_encoder") == (part == "image_encoder")]
        common.export(os.path.join(a.out, f"mobile_sam_{part}.safetensors"), state, keys, meta)
    model.load_state_dict(state)
    if a.frames:
        result = evaluate(model, common.held_out(dev, a.frames), dev)
        log.append({"minute": round(clock.spent() / 60, 2), "step": step, "mask_iou": result})
        print("sam held-out mask IoU with true boxes, by class:", result, flush=True)
        s = torch.load(a.state, map_location="cpu")
        s["log"] = log
        common.save_state(a.state, **s)
    with open(os.path.join(a.out, "sam_log.json"), "w") as out:
        json.dump(log, out)


if __name__ == "__main__":
    main()
