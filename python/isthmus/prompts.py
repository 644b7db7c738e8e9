"""Prompts for the segmenter: arrays of points, boxes and masks as ist_prompt."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from ._lib import ffi
from .errors import ArgumentError

__all__ = ["pack_prompts"]

_POINT = np.dtype([("x", "f4"), ("y", "f4"), ("label", "i4")])


def _each(values: Any, single: tuple[int, ...], what: str) -> list[Optional[NDArray[np.float32]]]:
    """One array, or None, for each prompt; an array with a number of dimensions in `single` is that of one prompt."""
    if isinstance(values, (list, tuple)) and any(v is None for v in values):
        rows: Sequence[Any] = values
    else:
        try:
            whole = np.asarray(values, dtype=np.float32)
            rows = [whole] if whole.ndim in single else list(whole)
        except (TypeError, ValueError):
            rows = values  # prompts of different numbers of points
    try:
        return [None if row is None else np.ascontiguousarray(row, dtype=np.float32) for row in rows]
    except (TypeError, ValueError):
        raise ArgumentError(f"{what} are not numbers, or are of unequal lengths") from None


def _points(at: NDArray[np.float32], labels: Optional[NDArray[np.float32]], k: int) -> NDArray[Any]:
    at = at.reshape(1, -1) if at.ndim == 1 else at
    if at.ndim != 2 or at.shape[1] not in (2, 3):
        raise ArgumentError(f"prompt {k}: points of shape {at.shape}, want (n, 2), or (n, 3) with a label")
    if labels is not None and (at.shape[1] == 3 or labels.reshape(-1).shape != (len(at),)):
        raise ArgumentError(f"prompt {k}: {labels.size} labels for points of shape {at.shape}")
    found = np.empty(len(at), _POINT)
    found["x"], found["y"] = at[:, 0], at[:, 1]
    want = labels.reshape(-1) if labels is not None else at[:, 2] if at.shape[1] == 3 else np.ones(len(at), np.float32)
    if not np.all(np.isin(want, (-1, 0, 1))):
        raise ArgumentError(f"prompt {k}: a point's label is 1 (in), 0 (out) or -1 (none)")
    found["label"] = want
    return found[found["label"] >= 0]  # -1 fills up arrays of unequal prompts, as SAM has it


def _fill(prompt: Any, points: Optional[NDArray[Any]], box: Optional[NDArray[np.float32]],
          mask: Optional[NDArray[np.float32]], k: int) -> None:
    if points is not None and len(points):
        prompt.points = ffi.cast("ist_point *", points.ctypes.data)
        prompt.point_count = len(points)
    if box is not None:
        if box.shape != (4,):
            raise ArgumentError(f"prompt {k}: a box of shape {box.shape}, want (4,)")
        prompt.box = ffi.cast("float *", box.ctypes.data)
    if mask is not None:
        if mask.ndim != 2:
            raise ArgumentError(f"prompt {k}: a mask of shape {mask.shape}, want (height, width)")
        prompt.mask = ffi.cast("float *", mask.ctypes.data)
        prompt.mask_height, prompt.mask_width = mask.shape


def pack_prompts(points: Any, point_labels: Any, boxes: Any, masks: Any) -> tuple[Any, int, list[Any]]:
    """ist_prompt[], their number, and what must live as long as they are read. Raises ArgumentError."""
    given = {
        "points": None if points is None else _each(points, (1, 2), "points"),
        "boxes": None if boxes is None else _each(boxes, (1,), "boxes"),
        "masks": None if masks is None else _each(masks, (2,), "masks"),
    }
    counts = {name: len(each) for name, each in given.items() if each is not None}
    if not counts:
        raise ArgumentError("no prompts: give points, boxes or masks")
    if len(set(counts.values())) > 1:
        raise ArgumentError("prompts of unequal numbers: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    count = next(iter(counts.values()))
    nothing: list[Any] = [None] * count
    at, corner, logits = (given[name] or nothing for name in ("points", "boxes", "masks"))
    labels = nothing
    if point_labels is not None:
        labels = _each(point_labels, (1,), "point_labels")
        if points is None or len(labels) != count:
            raise ArgumentError(f"point_labels of {len(labels)} prompts for points of {counts.get('points', 0)}")
    prompts = ffi.new("ist_prompt[]", max(count, 1))
    packed = []
    for k in range(count):
        where = at[k]
        packed.append(None if where is None else _points(where, labels[k], k))
        _fill(prompts[k], packed[k], corner[k], logits[k], k)
    return prompts, count, [packed, corner, logits]
