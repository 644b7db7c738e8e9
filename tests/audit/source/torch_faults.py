"""Planted faults of PyTorch; see opencl.c for how to read the marks.

model(x).cpu() in a docstring is no call.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.Linear(n, n)
        self.register_buffer("mean", torch.zeros(3))
        self.steps = [x.item() for x in torch.linspace(0, 1, 4)]

    def forward(self, x, mask=None):
        y = self.layer(x)
        if (y > 0).any():  # expect: implicit_wait medium
            y = F.relu(y)
        n = int(y.sum())  # expect: scalar_read medium
        y = y[y > 0.5]  # expect: data_dependent_shape medium
        idx = torch.nonzero(y)  # expect: data_dependent_shape medium
        host = y.cpu()  # expect: blocking_transfer medium
        scale = torch.tensor([2.0], device=x.device)  # expect: redundant_upload medium
        return y * scale


def predict(model, image: np.ndarray, device):
    batch = torch.from_numpy(image).to(device)  # expect: upload necessary
    size = torch.tensor([[640, 640]]).cuda()  # expect: redundant_upload medium
    out = model(batch, size)
    labels, boxes, scores = out
    keep = scores > 0.4
    boxes = boxes[keep]  # expect: data_dependent_shape medium
    for b in boxes:
        print(b.sum())  # expect: implicit_wait critical
        value = float(b[0])  # expect: scalar_read critical
        corner = b[1].item()  # expect: scalar_read critical
    names = [table[int(x.item())] for x in labels.flatten()]  # expect: scalar_read critical
    return boxes.detach().cpu().numpy(), scores.cpu().tolist()  # expect: split_transfer minor


def infer_chain(model, image):
    out = model(image.cuda(non_blocking=True))  # expect: upload necessary
    masks = out.detach().cpu().numpy()  # expect: host_round_trip critical
    masks = np.where(masks > 0, 1, 0)
    again = torch.from_numpy(masks).to("cuda")
    return model(again)


def helper(model, x: Tensor):
    return model(x).cpu()  # expect: read_write_chain critical


def process_frame(model, x: Tensor):
    found = helper(model, x)
    return model(found.to("cuda"))


class Tracker:
    def update(self, model, x: torch.Tensor):
        self.state = model(x).to("cpu")  # expect: read_write_chain critical

    def step(self, model):
        return model(self.state.to(device="cuda:0"))


def detect_more(model, x: Tensor, q, table: dict):
    scores = model(x)["scores"]
    total = scores.sum()
    if total > 3:  # expect: implicit_wait medium
        pass
    while not torch.equal(scores, total):  # expect: implicit_wait critical
        torch.cuda.synchronize()  # expect: wait_in_loop critical
    assert math.isfinite(total)  # expect: scalar_read medium
    message = f"total {total:.2f} {{total}}"  # expect: implicit_wait medium
    order = np.asarray(total)  # expect: blocking_transfer medium
    rows = [{k: v.cuda() for k, v in t.items()} for t in table]  # expect: transfer_in_loop critical
    grid = torch.arange(10).to(scores.device)  # expect: host_pointer medium
    model(x)
    model(x); torch.cuda.synchronize()  # expect: wait necessary


def main():
    model = Net(4).cuda()  # expect: upload necessary
    for batch in loader:
        out = model(batch.to("cuda"))  # expect: upload necessary
        first = out.cpu()  # expect: download necessary
        second = out.cpu()  # expect: split_transfer minor
        if step % 10 == 0 and verbose: print("loss", first)


@torch.no_grad()
def summarise(x: torch.Tensor):
    return x.mean().item()  # expect: scalar_read minor
