"""Results: what a frame holds, in memory of its own.

Everything the engine gives is copied out of its slot once, in C, before it is handed over; the arrays here are views of that
copy and keep it alive. They stay valid whatever becomes of the engine.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

import numpy as np
from numpy.typing import NDArray

from ._lib import check, ffi, lib

if TYPE_CHECKING:
    import supervision  # type: ignore[import-not-found,unused-ignore]

__all__ = ["Frame", "Labels", "Object", "PackedMask", "Times", "Transfers", "Trust", "frames_of"]


def _dtype_of(ctype: Any) -> np.dtype[Any]:
    """The layout of a C struct, as the C compiler has it."""
    kinds = {"float": "f4", "double": "f8", "int": "i4", "uint64_t": "u8"}
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    for name, member in ctype.fields:
        t = member.type
        if t.kind == "struct":
            formats.append(_dtype_of(t))
        elif t.kind == "enum":
            formats.append("u4")
        elif t.kind == "array":
            formats.append((kinds[t.item.cname], t.length))
        else:
            formats.append(np.uintp if t.kind == "pointer" else kinds[t.cname])
        names.append(name)
        offsets.append(member.offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(ctype)})


_OBJECT = _dtype_of(ffi.typeof("ist_object"))
_TRUST = _dtype_of(ffi.typeof("ist_trust"))
_STATES = {number: name[4:].lower() for number, name in ffi.typeof("ist_visibility").elements.items()}


class _Memory:
    """Bytes of a received batch, for NumPy: the array keeps this, and this the batch."""

    __slots__ = ("__array_interface__", "batch")

    def __init__(self, batch: Any, pointer: Any, count: int, kind: str) -> None:
        self.batch = batch
        address = int(ffi.cast("uintptr_t", pointer))
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": kind, "data": (address, False)}


@dataclass(frozen=True)
class Labels:
    """Names and COCO category ids of an engine's labels."""

    names: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()

    def name(self, label: int) -> str:
        return self.names[label] if 0 <= label < len(self.names) else str(label)

    def category(self, label: int) -> int:
        return self.categories[label] if 0 <= label < len(self.categories) else label


@dataclass(frozen=True)
class Transfers:
    """What crossed between host and device for a frame's batch: calls, and bytes each way."""

    writes: int
    reads: int
    waits: int
    h2d_bytes: int
    d2h_bytes: int


@dataclass(frozen=True)
class Times:
    """Milliseconds of a frame's batch: in submit, waiting in receive, from the start of one to the end of the other."""

    submit: float
    wait: float
    total: float


@dataclass(frozen=True, eq=False)
class PackedMask:
    """A binary mask, bit-packed down columns, cut to its tight box.

    Pixel (x, y) is set iff x0 <= x < x0 + columns, y0 <= y < y0 + 32 * words and bit (y - y0) % 32 of
    bits[x - x0, (y - y0) // 32] is set.

    Attributes:
        x0, y0: upper left corner in pixels; y0 is a multiple of 32.
        bits: (columns, words) uint32; no columns when the mask is empty.
    """

    x0: int
    y0: int
    bits: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Trust:
    """Whether guidance may trust a track in this frame: scores of 0..1, and what became of it (ist_trust).

    Attributes:
        track: its id; 1 without match="tracks". object: index of its object in the frame, -1: not seen.
        state: "lost", "relocalizing" or "visible".
        sharpness, contrast, continuity, stability: what s is the mean of. geometry, appearance, depth: likewise of c.
        edge, inside, outside: weights of the image, with trust={"weights": 1}.
    """

    track: int
    object: int
    state: str
    sharpness: float
    contrast: float
    continuity: float
    stability: float
    geometry: float
    appearance: float
    depth: float
    s: float
    c: float
    edge: PackedMask
    inside: PackedMask
    outside: PackedMask


@dataclass(frozen=True, eq=False)
class Object:
    """One object of a frame. Boxes are x0 y0 x1 y1 in pixels of the image.

    Attributes:
        label, name: class index of the detector, its name.
        score: 0..1.
        box: (4,) float32, not clipped to the image.
        query: the detector's query, -1 for a given box; of given prompts, which of the prompt's masks.
        match: track id, index of the target or of the prompt; -1: none.
        match_iou: IoU with the matched track or target; 0 when unmatched.
        mask_score: the segmenter's own IoU estimate; 0 without masks.
        stability: area at logit > 1 over area at logit > -1.
        area: set pixels of the mask.
        mask_box: (4,) int32, inclusive x0 y0 x1 y1 of set pixels.
    """

    label: int
    name: str
    score: float
    box: NDArray[np.float32]
    query: int
    match: int
    match_iou: float
    mask_score: float
    stability: float
    area: int
    mask_box: NDArray[np.int32]
    frame: "Frame" = field(repr=False)
    index: int = field(repr=False)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(height, width) bool, made when asked for."""
        return self.frame.mask(self.index)


@dataclass(frozen=True, eq=False)
class Frame:
    """What was found in one image: n objects by falling score, of given prompts in their order.

    Attributes:
        width, height: of the image, in pixels.
        key: Image.key.
        dropped: detections above the threshold that did not fit max_objects.
        labels: (n,) int32, class indices. scores: (n,) float32, 0..1.
        boxes: (n, 4) float32, x0 y0 x1 y1 in pixels of the image, not clipped to it.
        queries, matches, areas: (n,) int32; match_ious, mask_scores, stabilities: (n,) float32; mask_boxes: (n, 4) int32:
            as in Object.
        points, crop_boxes: of prompts="everything": (n, 2) float64, x y of the point that was asked, and (n, 4) int32, x0 y0 x1
            y1 of the crop it was in; zeros otherwise.
        low_res: (n, s, s) float32 logits at a quarter of the segmenter's input, for mask prompts; None without the option.
        has_masks, tracked: whether the engine has a segmenter, whether matches are track ids.
        window: (low, high) that its uint16 samples went through; None for uint8.
        transfers, times: of the batch that the image was in.
    """

    width: int
    height: int
    key: Any
    dropped: int
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    boxes: NDArray[np.float32]
    queries: NDArray[np.int32] = field(repr=False)
    matches: NDArray[np.int32] = field(repr=False)
    match_ious: NDArray[np.float32] = field(repr=False)
    mask_scores: NDArray[np.float32] = field(repr=False)
    stabilities: NDArray[np.float32] = field(repr=False)
    areas: NDArray[np.int32] = field(repr=False)
    mask_boxes: NDArray[np.int32] = field(repr=False)
    points: NDArray[np.float64] = field(repr=False)
    crop_boxes: NDArray[np.int32] = field(repr=False)
    low_res: Optional[NDArray[np.float32]] = field(repr=False)
    has_masks: bool = field(repr=False)
    tracked: bool = field(repr=False)
    window: Optional[tuple[int, int]] = field(repr=False)
    transfers: Transfers = field(repr=False)
    times: Times = field(repr=False)
    _table: NDArray[Any] = field(repr=False)
    _trust: NDArray[Any] = field(repr=False)
    _words: NDArray[np.uint32] = field(repr=False)
    _named: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects)

    @property
    def names(self) -> list[str]:
        """The objects' class names, as in isthmus predict's results."""
        return [self._named.name(label) for label in self.labels.tolist()]

    @property
    def objects(self) -> list[Object]:
        """The same, object by object."""
        columns = (self.labels, self.scores, self.queries, self.matches, self.match_ious, self.mask_scores,
                   self.stabilities, self.areas)
        return [
            Object(label, self._named.name(label), score, self.boxes[i], query, match, iou, quality, stability, area,
                   self.mask_boxes[i], self, i)
            for i, (label, score, query, match, iou, quality, stability, area) in enumerate(
                zip(*(column.tolist() for column in columns)))
        ]

    @property
    def trust(self) -> list[Trust]:
        """The tracks that live, with trust=..."""
        scores = [name for name in Trust.__dataclass_fields__ if name in (_TRUST.names or ()) and name not in ("state", "edge")]
        return [
            Trust(**{name: t[name].item() for name in scores}, state=_STATES[int(t["state"])], edge=self._packed(t["edge"]),
                  inside=self._packed(t["in"]), outside=self._packed(t["out"]))
            for t in self._trust
        ]

    def packed(self, i: int) -> PackedMask:
        """The mask of object i as the engine packed it: a view."""
        return self._packed(self._table["mask"][i])

    def _packed(self, mask: Any) -> PackedMask:
        first = (int(mask["bits"]) - self._words.ctypes.data) // 4
        columns, words = int(mask["columns"]), int(mask["words"])
        bits = self._words[first : first + columns * words].reshape(columns, words)
        return PackedMask(int(mask["x0"]), int(mask["y0"]), bits)

    def _unpack(self, i: int, out: NDArray[np.bool_]) -> None:
        m = self.packed(i)
        columns, words = m.bits.shape
        if not columns:
            return
        rows = np.unpackbits(m.bits.astype("<u4", copy=False).view(np.uint8), bitorder="little")
        inside = rows.reshape(columns, 32 * words)[:, : self.height - m.y0].T
        out[m.y0 : m.y0 + inside.shape[0], m.x0 : m.x0 + columns] = inside

    def mask(self, i: int) -> NDArray[np.bool_]:
        """The mask of object i: (height, width) bool, made when asked for."""
        out = np.zeros((self.height, self.width), bool)
        self._unpack(i, out)
        return out

    @property
    def masks(self) -> Optional[NDArray[np.bool_]]:
        """All masks: (n, height, width) bool, made each time they are asked for; None without a segmenter."""
        if not self.has_masks:
            return None
        out = np.zeros((len(self), self.height, self.width), bool)
        for i in range(len(self)):
            self._unpack(i, out[i])
        return out

    def rle(self, i: int) -> dict[str, Any]:
        """The mask of object i as COCO's compressed RLE: {"size": [height, width], "counts": str}."""
        m = self.packed(i)
        error, text, mask = ffi.new("ist_error *"), ffi.new("char **"), ffi.new("ist_mask *")
        mask.x0, mask.y0 = m.x0, m.y0
        mask.columns, mask.words = m.bits.shape
        mask.bits = ffi.cast("uint32_t *", m.bits.ctypes.data)
        try:
            check(lib.held_rle(mask, self.width, self.height, text, error), error)
            return {"size": [self.height, self.width], "counts": ffi.string(text[0]).decode("ascii")}
        finally:
            lib.held_text_free(text)

    def to_coco(self, image_id: int, categories: Optional[Mapping[int, int]] = None) -> list[dict[str, Any]]:
        """COCO results, one dict per object, with the numbers of isthmus predict's results.json.

        Args:
            image_id: of the image.
            categories: category ids by label; default: the labels, for a model of COCO's 80 classes COCO's own ids.
        """
        found = []
        for i, (label, score, box) in enumerate(zip(self.labels.tolist(), self.scores, self.boxes)):
            size = box[2:] - box[:2]
            entry = {
                "image_id": image_id,
                "category_id": self._named.category(label) if categories is None else categories[label],
                "bbox": [float(str(v)) for v in (box[0], box[1], size[0], size[1])],
                "score": float(str(score)),
            }
            if self.has_masks:
                entry["segmentation"] = self.rle(i)
            found.append(entry)
        return found

    def to_supervision(self) -> "supervision.Detections":
        """supervision.Detections with boxes, masks, scores, labels, names and, with match="tracks", track ids.

        Needs the package `supervision`.
        """
        import supervision

        return supervision.Detections(
            xyxy=np.array(self.boxes),
            mask=self.masks,
            confidence=np.array(self.scores),
            class_id=np.array(self.labels),
            tracker_id=np.array(self.matches) if self.tracked else None,
            data={"class_name": np.array(self.names, dtype=str)},
        )


def frames_of(batch: Any, keys: list[Any], labels: Labels, has_masks: bool, tracked: bool) -> list[Frame]:
    """The frames of a held_batch *, which they keep."""
    count = batch.object_count
    table = np.asarray(_Memory(batch, batch.objects, count * _OBJECT.itemsize, "|u1")).view(_OBJECT)
    words = np.asarray(_Memory(batch, batch.words, batch.word_count, np.dtype(np.uint32).str))
    logits = None
    if batch.low_res:
        logits = np.asarray(_Memory(batch, batch.low_res, batch.low_res_count, np.dtype(np.float32).str))
        side = round((batch.low_res_count / count) ** 0.5) if count else 0
        logits = logits.reshape(count, side, side)
    t = batch.transfers
    transfers = Transfers(t.writes, t.reads, t.waits, t.h2d_bytes, t.d2h_bytes)
    times = Times(batch.submit_ms, batch.wait_ms, batch.total_ms)
    trust = np.asarray(_Memory(batch, batch.trust, batch.trust_count * _TRUST.itemsize, "|u1")).view(_TRUST)
    frames, first, judged = [], 0, 0
    for i in range(batch.frame_count):
        f = batch.frames[i]
        here = slice(first, first + f.object_count)
        first = here.stop
        tracks = trust[judged : judged + f.trust_count]
        judged += f.trust_count
        o = table[here]
        frames.append(
            Frame(f.width, f.height, keys[i], f.dropped, o["label"], o["score"], o["box"], o["query"], o["match"],
                  o["match_iou"], o["mask_score"], o["stability"], o["area"], o["mask_box"], o["point"], o["crop_box"],
                  None if logits is None else logits[here], has_masks, tracked,
                  (f.window_low, f.window_high) if f.window_high or f.window_low else None, transfers, times, o, tracks,
                  words, labels))
    return frames
