r"""Nothing here is above necessary. model(x).cpu() \""" x.cpu()"""
import queue
import threading

import numpy as np
import torch

# out.cpu(); torch.cuda.synchronize()
TEXT = 'out.cpu()' "tensor.item()" '''
    x.cpu()
''' f"{len('x')} .cpu() {{x.item()}}"
RAW = rb'\' x.cpu() '
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def process(model, frames, table: dict, jobs: queue.Queue, event: threading.Event):
    """for x in y: x.cpu()"""
    results = []
    for frame in frames:
        results.append(model(frame))
        value = table.get("x", 3)
        job = jobs.get()
        event.wait()
        number = float("1") + int(table["n"]) + bool(value)
        print("frame", number, frame.shape, len(results), results[0].dtype)
        if results[0].shape[0] > 3 and results is not None and "x" in table:
            continue
    return torch.stack(results).cpu()  # expect: download necessary


def load(path):
    data = np.load(path)
    mean = data.mean().item()
    rows = data.tolist()
    t = torch.tensor(rows)
    best = t.max().item()
    listed = t.tolist()
    if t.sum() > 3 or (data > 0).any():
        t = t[t > 0]
    flags = np.nonzero(data)
    return t.numpy()


class Infer:
    item = cpu = None

    def predict(self, x, scale: float):
        y = self.model(x.to(torch.float16))
        z = y.to(dtype=torch.float32).to(x.dtype).type(torch.half)
        w = z.detach().clone() * scale
        mask = torch.where(w > 0, w, torch.zeros_like(w))
        size = w.size(0) if w.ndim > 2 else w.numel()
        if size > 3 and scale > 0.5 and not self.training:
            self.cpu = 1
        return mask

    def items(self): return self.items()
