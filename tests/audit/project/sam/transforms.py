from copy import deepcopy


class Resize:
    def __init__(self, size):
        self.size = size

    def apply_coords(self, coords, shape):
        coords = deepcopy(coords).astype(float)
        return coords

    def apply_boxes(self, boxes, shape):
        return self.apply_coords(boxes.reshape(-1, 2, 2), shape).reshape(-1, 4)
