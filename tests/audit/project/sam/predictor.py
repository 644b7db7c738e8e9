import torch

from .model import Sam
from .transforms import Resize


class Base:
    def upload(self, values):
        return torch.as_tensor(values, device=self.device)  # the other end of a chain


class Predictor(Base):
    def __init__(self, model: Sam):
        self.model = model
        self.device = model.device
        self.transform = Resize(1024)

    def set_image(self, image):
        x = torch.as_tensor(image, device=self.device)  # expect: host_pointer medium
        self.features = self.model(x)

    def predict(self, points=None, box=None):
        if box is not None:
            box = self.transform.apply_boxes(box, (720, 1280))
        return self.model(self.upload(box))
