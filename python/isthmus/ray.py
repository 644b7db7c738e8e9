"""isthmus in Ray Data: a class for map_batches with an engine in each actor. Needs `ray[data]` and pyarrow.

    ds = ray.data.read_binary_files("s3://bucket/frames", include_paths=True)
    ds = ds.map_batches(isthmus.ray.Predictor, fn_constructor_kwargs={"conf": 0.5}, concurrency=4, num_gpus=0.5, batch_size=64)
    ds.write_parquet("out")

Two actors may share a GPU (num_gpus=0.5), and are twice as fast as one on an H200 (docs/scale.md).
"""
from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .engine import Engine
from .errors import Error, InputError
from .files import _in_order, decode
from .images import Image
from .results import Frame

__all__ = ["Predictor", "SCHEMA"]

_RLE = pa.struct([("size", pa.list_(pa.int32())), ("counts", pa.string())])

SCHEMA = pa.schema([
    ("width", pa.int32()),
    ("height", pa.int32()),
    ("labels", pa.list_(pa.int32())),
    ("names", pa.list_(pa.string())),
    ("scores", pa.list_(pa.float32())),
    ("boxes", pa.list_(pa.list_(pa.float32()))),
    ("categories", pa.list_(pa.int64())),
    ("mask_scores", pa.list_(pa.float32())),
    ("areas", pa.list_(pa.int32())),
    ("masks", pa.list_(_RLE)),
    ("error", pa.string()),
])
"""The columns that Predictor adds, a row for each image: boxes are x0 y0 x1 y1 in pixels, masks COCO's compressed RLE (null
without a segmenter), categories COCO's ids as in isthmus predict; `error` is a sentence for an image that could not be used,
whose other columns are null."""


def _row(frame: Frame) -> dict[str, Any]:
    return {
        "width": frame.width,
        "height": frame.height,
        "labels": frame.labels,
        "names": frame.names,
        "scores": frame.scores,
        "boxes": list(frame.boxes),
        "categories": [frame._named.category(label) for label in frame.labels.tolist()],
        "mask_scores": frame.mask_scores if frame.has_masks else None,
        "areas": frame.areas if frame.has_masks else None,
        "masks": [frame.rle(i) for i in range(len(frame))] if frame.has_masks else None,
        "error": None,
    }


class Predictor:
    """A callable for ray.data.Dataset.map_batches: batches of images of any sizes in, rows of SCHEMA out.

    The rows are those of the batch, in its order, with its columns but for the images themselves. A bad image is a row with an
    `error`; the failure of a device or a driver raises, so that Ray starts the actor anew and repeats its block.

    Args:
        column: of the images: "bytes" holds files (ray.data.read_binary_files), any other arrays
            (ray.data.read_images' "image").
        keep: columns to take over; default: all but `column`.
        threads: that decode.
        options: of isthmus.Engine.
    """

    def __init__(self, column: str = "bytes", keep: Sequence[str] | None = None, threads: int = 2, **options: Any) -> None:
        self._engine = Engine(**options)
        self._column = column
        self._keep = keep
        self._threads = threads

    def _image(self, value: Any) -> Image:
        if self._column != "bytes":
            return Image(value)
        try:
            return Image(decode(value))
        except InputError as error:
            return Image(error)

    def _rows(self, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
        images = _in_order(self._image, values, self._threads, 2 * self._threads)
        for frame in self._engine.stream(images, errors="yield"):
            yield {"error": str(frame)} if isinstance(frame, Error) else _row(frame)

    def __call__(self, batch: Mapping[str, np.ndarray[Any, Any]]) -> Any:
        rows = list(self._rows(batch[self._column]))
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        names = [name for name in batch if name != self._column] if self._keep is None else self._keep
        for i, name in enumerate(names):
            table = table.add_column(i, name, pa.array(list(batch[name])))
        return table
