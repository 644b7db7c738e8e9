import torch
from torch import nn


class Sam(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Linear(3, width)

    @property
    def device(self):
        return self.encoder.weight.device

    def forward(self, image):
        return self.encoder(image)
