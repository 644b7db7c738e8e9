"""Pixels for the engine: NumPy arrays as they lie in memory."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._lib import ffi, lib
from .errors import ArgumentError, Error
from .prompts import pack_prompts

__all__ = ["Image", "fill_image"]

_FORMATS = {
    (np.dtype(kind).str, channels): getattr(lib, f"IST_{name}{np.dtype(kind).itemsize * 8}")
    for kind in (np.uint8, np.uint16)
    for channels, name in enumerate(("GRAY", "GRAYA", "RGB", "RGBA"), 1)
}
_LARGEST_STRIDE = 2**31 - 1
_TARGET = np.dtype([("box", "f4", 4), ("label", "i4")])


@dataclass(eq=False)
class Image:
    """An image with what belongs to it. A bare array does where nothing does.

    Attributes:
        pixels: (height, width) or (height, width, 1..4), uint8 or uint16: gray, gray and alpha, RGB, RGBA. Rows may lie
            apart (a crop of a larger array); other layouts are copied. It is read before submitting returns. An Error (of one that could not be read) is raised when it comes to
            the engine.
        key: anything; comes back as Frame.key.
        targets: (n, 4) x0 y0 x1 y1 in pixels, for match="targets", "targets_set" and prompts="targets".
        target_labels: (n,) labels of the targets; -1 matches any class, which is the default.
        points, point_labels, boxes, masks: for prompts="given": see Engine.segment.
        window: (low, high) values of uint16 samples that become 0 and 255, of an engine with window="given" or "auto".
    """

    pixels: Any
    key: Any = None
    targets: Optional[ArrayLike] = None
    target_labels: Optional[ArrayLike] = None
    points: Optional[Union[ArrayLike, Sequence[Optional[ArrayLike]]]] = None
    point_labels: Optional[Union[ArrayLike, Sequence[Optional[ArrayLike]]]] = None
    boxes: Optional[Union[ArrayLike, Sequence[Optional[ArrayLike]]]] = None
    masks: Optional[Union[ArrayLike, Sequence[Optional[ArrayLike]]]] = None
    window: Optional[tuple[int, int]] = None


def _pixels(pixels: Any) -> tuple[NDArray[Any], int, int]:
    """The array to read, its pixel format and its row stride in bytes."""
    if isinstance(pixels, Error):
        raise pixels
    if getattr(pixels, "mode", None) in ("P", "1"):
        raise ArgumentError("a palette or bilevel image: convert it to L or RGB first")
    a = pixels if isinstance(pixels, np.ndarray) else np.asarray(pixels)
    if a.ndim not in (2, 3) or (a.ndim == 3 and not 1 <= a.shape[2] <= 4):
        raise ArgumentError(f"an array of shape {a.shape}, want (height, width) or (height, width, 1 to 4)")
    if a.dtype.kind != "u" or a.dtype.itemsize > 2:
        raise ArgumentError(f"an array of {a.dtype}, want uint8 or uint16")
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    height, width = a.shape[:2]
    channels = a.shape[2] if a.ndim == 3 else 1
    item = a.dtype.itemsize
    row = width * channels * item
    stride = a.strides[0] if height > 1 else row
    if (
        (width > 1 and a.strides[1] != channels * item)
        or (channels > 1 and a.strides[2] != item)
        or not row <= stride <= _LARGEST_STRIDE
        or not a.flags.aligned
    ):
        a = np.ascontiguousarray(a)
        stride = row
    return a, _FORMATS[a.dtype.str, channels], stride


def _targets(image: Image) -> NDArray[Any]:
    boxes = np.asarray(image.targets, dtype=np.float32)
    if boxes.size == 0:
        boxes = boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ArgumentError(f"targets of shape {boxes.shape}, want (n, 4)")
    found = np.empty(len(boxes), _TARGET)
    found["box"] = boxes
    if image.target_labels is None:
        found["label"] = -1
        return found
    labels = np.asarray(image.target_labels)
    if labels.shape != (len(boxes),):
        raise ArgumentError(f"target_labels of shape {labels.shape} for {len(boxes)} targets")
    found["label"] = labels
    return found


def fill_image(out: Any, image: Image, tag: int) -> list[Any]:
    """Fills an ist_image, and gives back what must live as long as it is read. Raises ArgumentError."""
    a, out.format, out.stride = _pixels(image.pixels)
    out.height, out.width = a.shape[:2]
    out.pixels = ffi.cast("void *", a.__array_interface__["data"][0])
    out.tag = tag
    if image.window is not None:
        try:
            out.window_low, out.window_high = image.window
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"window is {image.window!r}, want two whole numbers") from None
        if not out.window_low and not out.window_high:
            raise ArgumentError("a window of 0 to 0, want low below high")
    keep: list[Any] = [a]
    if image.targets is not None:
        targets = _targets(image)
        out.targets = ffi.cast("ist_target *", targets.ctypes.data)
        out.target_count = len(targets)
        keep.append(targets)
    if image.points is not None or image.boxes is not None or image.masks is not None:
        prompts, count, more = pack_prompts(image.points, image.point_labels, image.boxes, image.masks)
        out.prompts, out.prompt_count = prompts, count
        keep += [prompts, more]
    return keep
