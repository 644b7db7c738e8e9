from dataclasses import dataclass

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(x)


@dataclass
class Found:
    boxes: torch.Tensor
    count: int
