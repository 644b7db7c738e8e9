"""Trains D-FINE-N on generated frames, in pieces that resume: see ../README.md for the command lines.

Losses: varifocal classification (1), L1 (5), generalised IoU (2) on every decoder layer, the encoder's picks and the first
refinement; fine-grained localisation (0.15) on the decoder's distributions; contrastive denoising queries. The assignment
is exact and stays on the device: with at most four targets an optimum uses each target's four cheapest queries.
"""
import argparse
import itertools
import json
import os
import time
import numpy as np
import torch
import torch.nn.functional as F
import bmode
import common
import dfine

GROUPS = 8                       # denoising groups, each with a positive and a negative query per target slot
SLOTS = bmode.SLOTS


def corners(b):
    half = b[..., 2:] / 2
    return torch.cat((b[..., :2] - half, b[..., :2] + half), -1)


def pair_iou(a, b):
    """IoU and generalised IoU of centre boxes, broadcast over leading axes."""
    a, b = corners(a), corners(b)
    wh = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    area = lambda x: (x[..., 2] - x[..., 0]).clamp(min=0) * (x[..., 3] - x[..., 1]).clamp(min=0)
    union = area(a) + area(b) - inter + 1e-7
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0)
    hull = hull[..., 0] * hull[..., 1] + 1e-7
    iou = inter / union
    return iou, iou - (hull - union) / hull


@torch.no_grad()
def assign(logits, boxes, labels, gt, valid):
    """Queries of the targets, [N,SLOTS], minimal total cost. logits [N,Q,nc]; gt [N,SLOTS,4] centre form."""
    n, q, _ = logits.shape
    p = logits.sigmoid().gather(2, labels[:, None].expand(n, q, SLOTS))
    cls = 0.25 * (1 - p) ** 2 * -torch.log(p + 1e-8) - 0.75 * p ** 2 * -torch.log(1 - p + 1e-8)
    l1 = (boxes[:, :, None] - gt[:, None]).abs().sum(-1)
    giou = pair_iou(boxes[:, :, None].expand(-1, -1, SLOTS, -1), gt[:, None].expand(-1, q, -1, -1))[1]
    cost, pick = (2 * cls + 5 * l1 - 2 * giou).transpose(1, 2).topk(SLOTS, 2, largest=False)
    combos = torch.tensor(list(itertools.product(range(SLOTS), repeat=SLOTS)), device=logits.device)
    who = torch.stack([pick[:, s][:, combos[:, s]] for s in range(SLOTS)], -1)          # [N,256,SLOTS]
    total = sum(cost[:, s][:, combos[:, s]] * valid[:, s, None] for s in range(SLOTS))
    for a, b in itertools.combinations(range(SLOTS), 2):
        both = (valid[:, a] & valid[:, b])[:, None]
        total = total + 1e4 * ((who[..., a] == who[..., b]) & both)
    return who.gather(1, total.argmin(1)[:, None, None].expand(-1, 1, SLOTS))[:, 0]


def classification(logits, query, labels, iou, weight):
    """Varifocal loss, summed. query, labels, iou, weight [N,T]; other queries are background."""
    n, q, nc = logits.shape
    target = torch.zeros(n, q * nc, device=logits.device)
    target.scatter_reduce_(1, query * nc + labels, iou * weight, "amax")
    target = target.view(n, q, nc)
    p = logits.detach().sigmoid()
    w = torch.where(target > 0, target, 0.75 * p * p)
    return (F.binary_cross_entropy_with_logits(logits, target, reduction="none") * w)


def localisation(corner, ref, gt, weight):
    """Cross entropy against the two bins around each side's offset, summed. corner [N,T,132]; ref, gt [N,T,4]."""
    bins = dfine.bin_values(corner.device)
    box, s = corners(gt), float(dfine.SCALE)
    d = torch.stack(((ref[..., 0] - box[..., 0]) * s / ref[..., 2] - s / 2, (ref[..., 1] - box[..., 1]) * s / ref[..., 3] - s / 2,
                     (box[..., 2] - ref[..., 0]) * s / ref[..., 2] - s / 2, (box[..., 3] - ref[..., 1]) * s / ref[..., 3] - s / 2), -1)
    d = d.clamp(bins[0] + 1e-4, bins[-1] - 1e-4)
    left = (torch.searchsorted(bins, d.contiguous(), right=True) - 1).clamp(0, dfine.BINS - 2)
    lo, hi = bins[left], bins[left + 1]
    t = ((d - lo) / (hi - lo)).clamp(0, 1)
    logp = corner.view(*corner.shape[:2], 4, dfine.BINS).log_softmax(-1)
    ce = -(logp.gather(-1, left[..., None])[..., 0] * (1 - t) + logp.gather(-1, left[..., None] + 1)[..., 0] * t)
    return (ce.sum(-1) * weight).sum()


def take(t, idx):
    return t.gather(1, idx[..., None].expand(-1, -1, t.shape[-1]))


def set_loss(logits, boxes, query, labels, gt, valid, number, class_mask=None, fine=None):
    """Sum of the weighted losses of one prediction set (rows may stack several layers)."""
    w = valid.float()
    iou, giou = pair_iou(take(boxes, query), gt)
    loss = 5 * ((take(boxes, query) - gt).abs().sum(-1) * w).sum() + 2 * ((1 - giou) * w).sum()
    if logits is not None:
        c = classification(logits, query, labels, iou.detach().clamp(0, 1), w)
        loss = loss + (c if class_mask is None else c * class_mask).sum()
    if fine is not None:
        loss = loss + 0.15 * localisation(take(fine[0], query), take(fine[1], query), gt, w * iou.detach().clamp(0, 1))
    return loss / number


def denoising(model, labels, gt, valid):
    """Noised targets as extra queries, by groups. Order: group, sign (positive first), slot."""
    b, dev, nc = gt.shape[0], gt.device, model.decoder.classes
    lab = torch.where(valid, labels, nc)[:, None, None].expand(b, GROUPS, 2, SLOTS)
    flip = (torch.rand(lab.shape, device=dev) < 0.25) & (lab < nc)
    lab = torch.where(flip, torch.randint(0, nc, lab.shape, device=dev), lab)
    box = torch.where(valid[..., None], gt, torch.tensor([0.5, 0.5, 0.1, 0.1], device=dev))
    box = box[:, None, None].expand(b, GROUPS, 2, SLOTS, 4)
    c = corners(box)
    shift = torch.rand(c.shape, device=dev)
    shift[:, :, 1] += 1.0
    shift = shift * torch.sign(torch.rand(c.shape, device=dev) - 0.5)
    c = (c + shift * torch.cat((box[..., 2:], box[..., 2:]), -1) * 0.5).clamp(0, 1)
    lo, hi = torch.minimum(c[..., :2], c[..., 2:]), torch.maximum(c[..., :2], c[..., 2:])
    noisy = torch.cat(((lo + hi) / 2, (hi - lo).clamp(min=1e-3)), -1).flatten(1, 3)
    count = noisy.shape[1]
    hide = torch.ones(count + dfine.QUERIES, count + dfine.QUERIES, dtype=torch.bool, device=dev)
    hide[count:, count:] = False
    hide[:count, count:] = False
    g = torch.arange(count, device=dev) // (2 * SLOTS)
    hide[:count, :count] = g[:, None] != g[None]
    return model.decoder.denoising_class_embed(lab.flatten(1)), dfine.inverse_sigmoid(noisy), hide


def losses(model, out, labels, gt, valid):
    b = gt.shape[0]
    dn = GROUPS * 2 * SLOTS
    number = valid.sum().clamp(min=1).float()
    lay = out["layers"]
    el, eb = out["enc"]
    # sets that are matched: three layers, the encoder's picks, the first refinement
    ml = torch.cat([l[0][:, dn:] for l in lay] + [el, lay[0][0][:, dn:].detach()])
    mb = torch.cat([l[1][:, dn:] for l in lay] + [eb, out["pre"][:, dn:]])
    rep = lambda t, n: t.repeat(n, *[1] * (t.dim() - 1))
    query = assign(ml.detach(), mb.detach(), rep(labels, 5), rep(gt, 5), rep(valid, 5))
    n = len(lay) * b
    fine = torch.cat([l[2][:, dn:] for l in lay]), torch.cat([l[3][:, dn:] for l in lay])
    one = set_loss(ml[:n], mb[:n], query[:n], rep(labels, 3), rep(gt, 3), rep(valid, 3), number, fine=fine)
    enc = set_loss(ml[n:n + b], mb[n:n + b], query[n:n + b], labels, gt, valid, number)
    pre = set_loss(None, mb[n + b:], query[n + b:], labels, gt, valid, number)
    # denoising: the assignment is known
    slot = torch.arange(dn, device=gt.device).view(GROUPS, 2, SLOTS)
    q = slot[:, 0].flatten()[None].expand(b, -1)
    dl, dg, dv = labels.repeat(1, GROUPS), gt.repeat(1, GROUPS, 1), valid.repeat(1, GROUPS)
    live = valid.repeat(1, 2 * GROUPS)[..., None].float()
    fine = torch.cat([l[2][:, :dn] for l in lay]), torch.cat([l[3][:, :dn] for l in lay])
    den = set_loss(torch.cat([l[0][:, :dn] for l in lay]), torch.cat([l[1][:, :dn] for l in lay]), rep(q, 3), rep(dl, 3), rep(dg, 3),
                   rep(dv, 3), number * GROUPS, class_mask=rep(live, 3), fine=fine)
    return one + enc + pre + den, one


class Pool:
    """A ring of generated frames on the device: each is drawn a few times, mirrored or not, with its contrast changed."""

    def __init__(self, dev, side, seed, room, compile_fields):
        self.gen = bmode.Generator(dev, seed, side, side, compile_fields=compile_fields)
        self.side, self.dev, self.room = side, dev, room
        self.images = torch.empty(room, 3, side, side, dtype=torch.uint8, device=dev)
        self.boxes = torch.zeros(room, SLOTS, 4, device=dev)
        self.labels = torch.zeros(room, SLOTS, dtype=torch.long, device=dev)
        self.valid = torch.zeros(room, SLOTS, dtype=torch.bool, device=dev)
        self.count = 0

    def add(self, n):
        f = self.gen.frames(n)
        at = (torch.arange(n, device=self.dev) + self.count) % self.room
        self.images[at] = (f["image"] * 255).round().byte()
        self.boxes[at], self.labels[at], self.valid[at] = f["boxes"] / self.side, f["labels"], f["valid"]
        self.count += n

    def draw(self, n):
        """images [n,3,S,S], labels, centre boxes (padding slots hold a dummy box), valid."""
        i = torch.randint(0, min(self.count, self.room), (n,), device=self.dev)
        x = self.images[i].float() / 255
        mirror = torch.rand(n, device=self.dev) < 0.5
        x = torch.where(mirror[:, None, None, None], x.flip(-1), x)
        x = x.pow(torch.exp(torch.randn(n, 1, 1, 1, device=self.dev) * 0.15))
        b, valid = self.boxes[i], self.valid[i]
        b = torch.where(mirror[:, None, None], torch.stack((1 - b[..., 2], b[..., 1], 1 - b[..., 0], b[..., 3]), -1), b)
        c = torch.cat(((b[..., :2] + b[..., 2:]) / 2, b[..., 2:] - b[..., :2]), -1)
        c = torch.where(valid[..., None], c, torch.tensor([0.5, 0.5, 0.1, 0.1], device=self.dev))
        return x.contiguous(memory_format=torch.channels_last), self.labels[i], c, valid


def evaluate(model, frames, device):
    """AP of a model on held-out frames (common.held_out)."""
    model.eval()
    found, truth = [], []
    with torch.no_grad():
        for f in frames:
            h, w = f["image"].shape[:2]
            x = f["image"].to(device).permute(2, 0, 1)[None].float()
            x = F.interpolate(x, size=(640, 640), mode="bilinear", antialias=True, align_corners=False).round().clamp(0, 255) / 255
            s, l, b = dfine.detections(model(x), 100)
            b = b[0].cpu().numpy() * np.array([w, h, w, h])
            found.append((s[0].cpu().numpy(), l[0].cpu().numpy(), b))
            truth.append((f["labels"].numpy(), f["boxes"].numpy()))
    return common.average_precision(found, truth), found


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=9.0, help="length of this piece")
    ap.add_argument("--total-minutes", type=float, default=27.0, help="length of the whole schedule")
    ap.add_argument("--state", default="dfine_state.pt", help="resume state, read if there and written at the end")
    ap.add_argument("--out", default=".")
    ap.add_argument("--start", help="safetensors or .pth-like state dict to begin from (fine-tuning)")
    ap.add_argument("--spent", type=float, default=0.0, help="with --start: minutes of the schedule already spent")
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--pool", type=int, default=3072, help="generated frames kept on the device")
    ap.add_argument("--reuse", type=int, default=4, help="a new batch is generated every so many steps")
    ap.add_argument("--sizes", default="0:320,0.15:448,0.4:640", help="progress:side steps")
    ap.add_argument("--peak", type=float, default=8e-4)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--frames", type=int, default=500, help="held-out frames for the evaluation at the end")
    ap.add_argument("--steps", type=int, default=0, help="stop after so many steps (tests)")
    ap.add_argument("--compile", action="store_true")
    a = ap.parse_args()
    dev = torch.device(a.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model = dfine.DFine(3, 640).to(dev, memory_format=torch.channels_last)
    wide = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    flat = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": wide, "weight_decay": 1e-4}, {"params": flat, "weight_decay": 0.0}], lr=a.peak,
                            fused=dev.type == "cuda")
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
            model.load_state_dict({k: v for k, v in load_file(a.start).items()})
        avg = common.Average(model)
    clock = common.Clock(a.minutes, a.total_minutes, spent)
    torch.manual_seed(1000 + step)
    trunk = torch.nn.Sequential(model.backbone, model.encoder)
    run = torch.compile(trunk, dynamic=False) if a.compile else trunk
    plan = [(float(x.split(":")[0]), int(x.split(":")[1])) for x in a.sizes.split(",")]
    pool, began, first = None, time.time(), step
    running = torch.zeros(3, device=dev)         # two sums and the number of steps in them
    one = torch.ones((), device=dev)
    while not clock.over() and not (a.steps and step - first >= a.steps):
        side = [s for p, s in plan if clock.progress() >= p][-1]
        if pool is None or pool.side != side:
            pool = Pool(dev, side, 5000 + step, a.pool, a.compile)
            for _ in range(max(1, min(a.pool // a.batch, 10))):
                pool.add(a.batch)
        if step % a.reuse == 0:
            pool.add(a.batch)
        x, labels, gt, valid = pool.draw(a.batch)
        for group in opt.param_groups:
            group["lr"] = common.rate(clock, step, a.peak)
        model.train()
        with torch.autocast(dev.type, torch.bfloat16):
            maps = run(x)
        maps = [m.float() for m in maps]
        out = model.decoder(maps, denoising(model, labels, gt, valid))
        loss, main_loss = losses(model, out, labels, gt, valid)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for p in model.parameters():
            if p.grad is not None:
                p.grad.nan_to_num_(0, 0, 0)
        opt.step()
        avg.update(model)
        running += torch.stack((loss.detach(), main_loss.detach(), one))
        step += 1
        if step % 100 == 0 or a.steps:
            mean = (running[:2] / running[2]).tolist()
            running.zero_()
            row = {"minute": round(clock.spent() / 60, 2), "step": step, "side": side, "loss": round(mean[0], 4),
                   "main": round(mean[1], 4), "rate": opt.param_groups[0]["lr"]}
            log.append(row)
            if step % 500 == 0 or a.steps:
                print("dfine", json.dumps(row), f"{(step - first) / (time.time() - began):.2f} it/s, norm {norm.item():.2f}", flush=True)
    common.save_state(a.state, model=model.state_dict(), opt=opt.state_dict(), avg=avg.pairs, updates=avg.steps, spent=clock.spent(),
                      step=step, log=log)
    state = {k: v for k, v in avg.pairs.items()}
    meta = {"provenance": "trained by this project on procedurally generated B-mode frames only", "architecture": "D-FINE-N",
            "steps": str(step), "licence": "same as the project", "use": "not for clinical use"}
    common.export(os.path.join(a.out, "dfine_n_demo.safetensors"), state, list(state), meta)
    model.load_state_dict(state)
    if a.frames:
        result, _ = evaluate(model, common.held_out(dev, a.frames), dev)
        log.append({"minute": round(clock.spent() / 60, 2), "step": step, "ap": result})
        print("dfine held-out AP, AP50, AP75, AP50 by class:", result, flush=True)
        s = torch.load(a.state, map_location="cpu")
        s["log"] = log
        common.save_state(a.state, **s)
    with open(os.path.join(a.out, "dfine_log.json"), "w") as out:
        json.dump(log, out)


if __name__ == "__main__":
    main()
