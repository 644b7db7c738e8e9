"""The fault that the audit of source code began with: a download here, its upload in a class of another file."""
import numpy as np
import torch

import tools
from detector import Detector, Found
from sam import Predictor as Segmenter, make
from unknown_tracker import Tracker


class Pipeline:
    def __init__(self, device):
        self.detector = Detector().to(device)  # expect: upload necessary
        self.segmenter = Segmenter(make["tiny"]())
        self.tracker = Tracker()

    def process(self, frame):
        boxes = self.detector(frame)
        found = boxes.detach().cpu().numpy()  # expect: read_write_chain critical
        self.segmenter.set_image(frame)
        return self.segmenter.predict(box=found)

    def process_data(self, frame):
        found = Found(boxes=self.detector(frame).cpu(), count=3)  # expect: read_write_chain critical
        return tools.upload_boxes(found)

    def process_dictionary(self, frame):
        found = tools.describe(self.detector(frame))
        return torch.as_tensor(found["boxes"], device="cuda")

    def track(self, frame):
        found = self.detector(frame).cpu().numpy()  # expect: handed_on medium
        names = tools.names_of(found.shape)
        return self.tracker.associate(found, names)

    def draw(self, frame):
        found = self.detector(frame).cpu().numpy()  # expect: download necessary
        return np.ascontiguousarray(found)
