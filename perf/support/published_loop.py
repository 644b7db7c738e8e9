"""The published PyTorch code in a loop, as its own inference tools use it: D-FINE and its post-processing find boxes, which go
to the host; MobileSAM's SamPredictor takes the image anew and gives a mask for each. Needs checkouts of both repositories,
PyTorch, torchvision and Pillow (tests/official/official.py loads them)."""
import os
import sys

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "official"))
import official  # noqa: E402


class PublishedLoop:
    """Call it with uint8 [height, width, 3]; it returns scores [k], boxes [k, 4] in pixels and masks [k, height, width] (None
    without a segmenter) as NumPy arrays, so that all work of the device has ended.

    Args:
        dfine, mobilesam: folders of checkouts.
        detector, segmenter: checkpoints; segmenter None: boxes only.
        device: "cuda" or "cpu".
        half: float16 where PyTorch's autocast uses it.
        boxes: the best k are kept, whatever their scores.
        size: of the detector's input, in pixels.
    """

    def __init__(self, dfine, mobilesam, detector, segmenter, device, half, boxes, size=640):
        state = official.read_checkpoint(detector)
        model, self.post = official.build_dfine(dfine, *official.recognise_dfine(state), image=size)
        self.model = official.load_strict(model, state).deploy().to(device)
        for name, value in list(vars(self.model.decoder).items()):  # plain attributes stay where they were made
            if isinstance(value, torch.Tensor):
                setattr(self.model.decoder, name, value.to(device))
        self.prepare = T.Compose([T.Resize((size, size)), T.ToTensor()])
        self.device, self.half, self.boxes, self.predictor = device, half, boxes, None
        if segmenter:
            sam = official.load_strict(official.build_mobile_sam(mobilesam), official.read_checkpoint(segmenter))
            self.predictor = official.sam_predictor(sam.to(device))

    @torch.no_grad()
    def __call__(self, image):
        with torch.autocast(self.device, torch.float16, enabled=self.half):
            picture = Image.fromarray(image)
            size = torch.tensor([[picture.width, picture.height]], device=self.device)
            found = self.post(self.model(self.prepare(picture)[None].to(self.device)), size)[0]
            scores = found["scores"][:self.boxes].float().cpu().numpy()
            boxes = found["boxes"][:self.boxes].float().cpu().numpy()
            if not self.predictor:
                return scores, boxes, None
            self.predictor.set_image(image)
            prompts = self.predictor.transform.apply_boxes_torch(torch.from_numpy(boxes).to(self.device), image.shape[:2])
            masks = self.predictor.predict_torch(None, None, prompts, multimask_output=False)[0]
            return scores, boxes, np.ascontiguousarray(masks[:, 0].cpu().numpy())
