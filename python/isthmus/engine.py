"""The engine: images in, frames out."""
from __future__ import annotations

import atexit
import enum
import itertools
import operator
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Iterable, Iterator, Mapping, Optional, Sequence, Union, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._lib import check, choice, ffi, fields_of, lib, package_file, text_of
from .devices import Device, device_of, devices
from .errors import ArgumentError, Error, FileError, InputError, LimitError, StateError
from .images import Image, fill_image
from .prompts import pack_prompts
from .results import Frame, Labels, frames_of

__all__ = ["DEMO", "Embedding", "Engine", "EngineInfo", "Pending", "weights"]


class _Demo(enum.Enum):
    DEMO = "the weights that ship"

    def __repr__(self) -> str:
        return "isthmus.DEMO"


DEMO = _Demo.DEMO
"""The checkpoint that ships with the package: trained on generated ultrasound-like frames, not for clinical use."""

Checkpoint = Union[str, "os.PathLike[str]", _Demo, None]

_alive: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_first = threading.Lock()
_asked = False


def _close_all() -> None:
    """At interpreter exit: waits for what is in flight, and frees devices while their drivers still work."""
    for engine in list(_alive):
        engine.close()


atexit.register(_close_all)


def weights(name: str = "") -> str:
    """The folder of the default checkpoints ($ISTHMUS_WEIGHTS_DIR, else the package's), or a file in it."""
    return os.path.join(os.environ.get("ISTHMUS_WEIGHTS_DIR") or package_file("weights"), name)


def _ask_drivers() -> None:
    """Some drivers set themselves up at a process's first question, and without a lock (PoCL 3.1)."""
    global _asked
    with _first:
        if not _asked:
            devices()
            _asked = True


def _set_option(config: Any, name: str, ctype: Any, value: Any, keep: list[Any]) -> None:
    """Writes one member of an ist_config."""
    if ctype.kind == "enum":
        setattr(config, name, choice(ctype, value, name))
    elif ctype.cname == "char *":
        keep.append(ffi.new("char[]", os.fsencode(value)))
        setattr(config, name, keep[-1])
    elif ctype.cname == "void *":
        setattr(config, name, ffi.cast("void *", operator.index(getattr(value, "int_ptr", value))))
    elif name == "classes":
        keep.append(ffi.new("int[]", [operator.index(label) for label in value] or [0]))
        config.classes, config.class_count = keep[-1], len(value)
    elif name in _PARAMETERS:
        keep.append(_parameters(name, value))
        setattr(config, name, keep[-1])
    else:
        setattr(config, name, float(value) if ctype.cname in ("float", "double") else operator.index(value))


_PARAMETERS = {"everything": ("ist_everything", lib.ist_everything_default), "trust": ("ist_trust_options", lib.ist_trust_default),
               "tiles": ("ist_tiles", lib.ist_tiles_default)}


def _parameters(option: str, parameters: Union[bool, Mapping[str, Any]]) -> Any:
    """A struct of an option's parameters, with their defaults."""
    struct, default = _PARAMETERS[option]
    found = ffi.new(struct + " *", default())
    types = {name: member.type for name, member in ffi.typeof(struct).fields if name != "struct_size"}
    for name, value in ({} if parameters is True else dict(parameters)).items():  # type: ignore[arg-type]
        if name not in types:
            raise ArgumentError(f"{option} has {name!r}, want some of {', '.join(types)}")
        setattr(found, name, float(value) if types[name].cname in ("double", "float") else operator.index(value))
    return found


def _configure(options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """An ist_config with the defaults of ist_config_default() and what is not None, and what it points to."""
    config = ffi.new("ist_config *", lib.ist_config_default())
    keep: list[Any] = []
    types = {name: member.type for name, member in ffi.typeof("ist_config").fields}
    for name, value in options.items():
        if value is None:
            continue
        try:
            _set_option(config, name, types[name], value, keep)
        except Error:
            raise
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"{name} is {value!r}, want {_WANTS.get(types[name].cname, 'another type')}") from None
    return config, keep


_WANTS = {
    "int": "a whole number", "float": "a number", "double": "a number", "char *": "a path or a string", "void *": "an OpenCL handle's address",
    "int const *": "a list of labels", "int *": "a list of labels", "ist_everything *": "a mapping of numbers",
    "ist_everything const *": "a mapping of numbers", "ist_trust_options const *": "a mapping of numbers",
    "ist_trust_options *": "a mapping of numbers", "ist_tiles *": "a mapping of numbers", "ist_tiles const *": "a mapping of numbers",
}


@dataclass(frozen=True)
class EngineInfo:
    """Facts about an open engine.

    Attributes:
        device: the device it runs on.
        precision: "fp32", "fp16" or "bf16": what "auto" became.
        detector, segmenter: "dfine-n", "mobilesam", for example; "" without one.
        classes: of the detector.
        input_size, input_width, input_height, segmenter_size: sides of the networks' inputs in pixels.
        batch, max_objects: as opened.
        arena_bytes, arena_lower_bound, weight_bytes, device_bytes, device_peak_bytes: device memory: intermediates, what
            no placement can do without, weights, everything now, everything at most.
        kernels: launches per frame.
        overlap: whether detector and image encoder run side by side.
    """

    device: Device
    precision: str
    detector: str
    segmenter: str
    classes: int
    input_size: int
    batch: int
    max_objects: int
    arena_bytes: int
    arena_lower_bound: int
    weight_bytes: int
    device_bytes: int
    device_peak_bytes: int
    kernels: int
    overlap: bool
    input_width: int
    input_height: int
    segmenter_size: int


class Pending:
    """A submitted batch."""

    __slots__ = ("_engine", "_error", "_frames", "_keys")

    def __init__(self, engine: "Engine", keys: list[Any], error: Optional[Error] = None) -> None:
        self._engine = engine
        self._keys = keys
        self._error: Optional[Error] = error
        self._frames: Optional[list[Frame]] = None

    @property
    def done(self) -> bool:
        """Whether result() returns without waiting."""
        return self._frames is not None or self._error is not None

    def result(self) -> list[Frame]:
        """Waits for the batch: its frames, in the order of its images. Raises Error when it failed."""
        while not self.done:
            self._engine._receive()
        if self._error is not None:
            raise self._error
        assert self._frames is not None
        return self._frames


class Engine:
    """Finds objects (D-FINE), matches them (exact assignment) and cuts out their masks (SAM) on an OpenCL device.

        engine = isthmus.Engine(detector="dfine_s_coco.pth", segmenter="mobile_sam.pt")
        frame = engine(pixels)
        print(frame.boxes, frame.names, frame.masks)

    Opening takes from a fraction of a second (kernels cached) to many seconds. Close it, use it in a with statement, or
    leave it to the garbage collector; at interpreter exit engines that are still open are closed.

    Threads: one at a time; a second one inside gets StateError. Calls release the interpreter's lock. After fork() a
    child's calls are StateError: open engines in children, which for many drivers must be started anew
    (multiprocessing's "spawn").

    Args (every option of ist_config by its name; None: the default of ist_config_default()):
        detector: D-FINE checkpoint (.pth, .pt, .safetensors); None: without. Default: the one that ships.
        segmenter: MobileSAM or SAM ViT-B checkpoint; None: no masks. Default: the one that ships.
        device: SPEC: "0", "1:0", "gpu", "cpu", part of a name, "uuid:..."; default: $ISTHMUS_DEVICE, else the best.
        precision: "auto", "fp32", "fp16", "bf16".
        match: "none", "tracks", "targets", "targets_set": what detections are matched with.
        prompts: "detections", "targets" (masks for given boxes), "given" (see segment and encode), "everything" (all that
            SamAutomaticMaskGenerator finds). everything: its parameters, by the names there, such as
            {"points_per_side": 16}.
        trust: True, or parameters such as {"theta_on": 0.7, "weights": 1}: scores and a state of each track, Frame.trust.
        input_size: side of the detector's input in pixels, a multiple of 32; input_width, input_height: unequal sides.
        segmenter_size: side of the segmenter's input, a multiple of 32.
        batch: images per submission, 1..64. frames_in_flight: batches under way, 1..8.
        max_objects: per image, 1..300. conf: least score. classes: labels to keep.
        nms_iou, nms_agnostic: IoU above which a detection is a duplicate of a better one, of its label or of any.
        readback: "packet"; "none": results stay on the device, for kernels of yours beside an adopted queue.
        max_targets: per image. max_pixels: largest width * height.
        track_iou, track_age: least IoU that continues a track; frames that it survives unseen. track_motion: it is expected
            where its speed takes it; track_high: detections of a higher score are matched first, others begin no track.
        overlap: "auto", "on", "off": both networks at once, on large GPUs. resize_order: "auto", "horizontal",
            "vertical", "pillow_13".
        tiles: True, or parameters such as {"width": 640, "height": 640, "overlap": 128, "whole": 1}: images larger than a tile
            are detected tile by tile; overlap in pixels (default: a fifth); whole: and as a whole;
            batch: tiles at a time.
        window: how uint16 samples become 8 bits: "none": round(v / 257); "auto": from the 0.5th to the 99.5th percentile of
            each image, found on the device; "given": Image.window, round(v / 257) without. "auto" takes those too.
        stored_constants: take the detector's anchors from the checkpoint.
        max_points, multimask, low_res, mask_prompts, max_embeddings: for prompts="given": points of a prompt; three masks
            of each; logits in the result; mask prompts; embeddings alive.
        cache_dir: folder for kernel binaries, "off": none.
        cl_context, cl_device, cl_queue: OpenCL handles to adopt, all three (addresses, or objects of PyOpenCL).

    Raises:
        Error: NoDeviceError, WeightsError, ArgumentError ... with the engine's sentence.
    """

    def __init__(
        self,
        detector: Checkpoint = DEMO,
        segmenter: Checkpoint = DEMO,
        device: Optional[str] = None,
        *,
        precision: Optional[str] = None,
        match: Optional[str] = None,
        prompts: Optional[str] = None,
        input_size: Optional[int] = None,
        input_width: Optional[int] = None,
        input_height: Optional[int] = None,
        segmenter_size: Optional[int] = None,
        batch: Optional[int] = None,
        frames_in_flight: Optional[int] = None,
        max_objects: Optional[int] = None,
        conf: Optional[float] = None,
        classes: Optional[Sequence[int]] = None,
        max_targets: Optional[int] = None,
        max_pixels: Optional[int] = None,
        track_iou: Optional[float] = None,
        track_age: Optional[int] = None,
        track_motion: Optional[bool] = None,
        track_high: Optional[float] = None,
        overlap: Optional[str] = None,
        resize_order: Optional[str] = None,
        window: Optional[str] = None,
        tiles: Union[bool, Mapping[str, int], None] = None,
        stored_constants: Optional[bool] = None,
        max_points: Optional[int] = None,
        multimask: Optional[bool] = None,
        low_res: Optional[bool] = None,
        mask_prompts: Optional[bool] = None,
        max_embeddings: Optional[int] = None,
        everything: Optional[Mapping[str, float]] = None,
        nms_iou: Optional[float] = None,
        nms_agnostic: Optional[bool] = None,
        readback: Optional[str] = None,
        trust: Union[bool, Mapping[str, float], None] = None,
        cache_dir: Union[str, "os.PathLike[str]", None] = None,
        cl_context: Any = None,
        cl_device: Any = None,
        cl_queue: Any = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        options["trust"] = None if trust is False else trust
        options["tiles"] = None if tiles is False else tiles
        self._handle: Any = None
        detects = prompts is None or prompts == "detections"
        if detector is DEMO:
            options["detector"] = weights("dfine_n_demo.safetensors") if detects else None
        if segmenter is DEMO:
            options["segmenter"] = weights("mobile_sam_demo.safetensors")
        if device is not None:
            options["device"] = str(device)
        config, keep = _configure(options)
        _ask_drivers()
        handle = lib.held_new()
        if not handle:
            raise MemoryError("out of memory for an engine")
        self._handle = ffi.gc(handle, lib.held_free)
        self._pending: dict[int, Pending] = {}
        self._tags = itertools.count(1)
        self._dead: Deque[Any] = deque()  # embeddings that nobody has any more
        error = ffi.new("ist_error *")
        check(lib.held_open(self._handle, config, error), error)
        del keep
        self._masks = config.segmenter != ffi.NULL
        self._tracks = config.match == lib.IST_MATCH_TRACKS
        self._multimask = bool(config.multimask)
        self._given = config.prompts == lib.IST_PROMPTS_GIVEN
        self.batch: int = config.batch
        self.frames_in_flight: int = config.frames_in_flight
        self._labels = self._read_labels(self.info.classes)
        _alive.add(self)

    # ---- life ----

    def close(self) -> None:
        """Waits for what is in flight, then frees everything. Frames stay valid. May be called again."""
        if self._handle is not None:
            lib.held_close(self._handle)
        _alive.discard(self)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an isthmus.Engine lives in one process: open one in each")

    def _read_labels(self, count: int) -> Labels:
        names, categories = [], []
        name, category, error = ffi.new("char[]", 256), ffi.new("int64_t *"), ffi.new("ist_error *")
        for label in range(count):
            check(lib.held_label(self._handle, label, name, 256, category, error), error)
            names.append(text_of(name))
            categories.append(category[0])
        return Labels(tuple(names), tuple(categories))

    @property
    def info(self) -> EngineInfo:
        """Facts: models, device, memory."""
        info, error = ffi.new("ist_engine_info *"), ffi.new("ist_error *")
        check(lib.held_describe(self._handle, info, error), error)
        facts = fields_of(info[0])
        facts["device"] = device_of(info.device)
        facts["precision"] = ffi.typeof("ist_precision").elements[info.precision].rpartition("_")[2].lower()
        facts["overlap"] = bool(info.overlap)
        return EngineInfo(**facts)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names by label; a label without a name has its number."""
        return self._labels.names

    # ---- frames ----

    def submit(self, images: Union[Image, ArrayLike, Sequence[Any]]) -> Pending:
        """Enqueues a batch of 1..batch images and returns without waiting for it.

        Pixels are read before this returns. When frames_in_flight batches are under way it waits for the oldest, whose
        Pending then has its frames. Raises ArgumentError and LimitError; the engine is then as it was.
        """
        return self._submit(images if isinstance(images, (list, tuple)) else [images])

    def _submit(self, images: Sequence[Any]) -> Pending:
        wrapped = [image if isinstance(image, Image) else Image(image) for image in images]
        tag = next(self._tags)
        structs = ffi.new("ist_image[]", max(len(wrapped), 1))
        keep = []
        for i, image in enumerate(wrapped):
            try:
                keep.append(fill_image(structs[i], image, tag))
            except ArgumentError as error:
                raise ArgumentError(f"image {i}: {error}") from None
        pending = Pending(self, [image.key for image in wrapped])
        self._send(pending, tag, lambda error: lib.held_submit(self._handle, structs, len(wrapped), error))
        return pending

    def _send(self, pending: Pending, tag: int, call: Any) -> None:
        """Makes room for a batch and submits it."""
        self._forget_dead()
        while lib.held_in_flight(self._handle) >= self.frames_in_flight:
            self._receive()
        error = ffi.new("ist_error *")
        self._pending[tag] = pending
        status = call(error)
        if status:
            del self._pending[tag]
        check(status, error)

    def _receive(self) -> None:
        """Waits for the oldest batch and gives its frames to its Pending. An interrupt in between loses none."""
        error = ffi.new("ist_error *")
        batch = ffi.gc(ffi.new("held_batch *"), lib.held_batch_free)
        try:
            status = lib.held_receive(self._handle, batch, error)
        finally:
            pending = self._pending.pop(batch.tag, None)
            if pending is not None and error.code:
                pending._error = Error.of(error.code, text_of(error.text))
            elif pending is not None:
                pending._frames = frames_of(batch, pending._keys, self._labels, self._masks, self._tracks)
        if pending is None:
            check(status, error)

    @overload
    def __call__(self, images: Union[list[Any], tuple[Any, ...]]) -> list[Frame]: ...
    @overload
    def __call__(self, images: Any) -> Frame: ...
    def __call__(self, images: Any) -> Any:
        """One image: its Frame. A list, or an array (n, height, width, channels): a list of Frames, in order.

        An image is an array (height, width) or (height, width, 1..4) of uint8 or uint16, or an isthmus.Image.
        """
        if isinstance(images, (list, tuple)) or (isinstance(images, np.ndarray) and images.ndim == 4):
            return list(self.stream(images))
        return self._submit((images,)).result()[0]

    def stream(self, images: Iterable[Any], *, errors: str = "raise") -> Iterator[Union[Frame, Error]]:
        """The frames of a sequence of images, in order, with frames_in_flight batches of `batch` images under way.

        Images are taken as they are needed, so that the sequence may be endless. Frames before a failure come first.

        Args:
            images: an iterable of arrays and isthmus.Image.
            errors: what an image that the engine refuses does: "raise" ends the iteration with its exception; "yield" gives
                the exception in the place of its frame and goes on.
        """
        if errors not in ("raise", "yield"):
            raise ArgumentError(f"errors is {errors!r}, want 'raise' or 'yield'")
        return self._stream(iter(images), errors == "yield")

    def _stream(self, images: Iterator[Any], lenient: bool) -> Iterator[Union[Frame, Error]]:
        flying: Deque[Pending] = deque()
        ended: Optional[Exception] = None
        going = True
        while going:
            batch: list[Any] = []
            try:
                batch.extend(itertools.islice(images, self.batch))
            except Exception as error:  # of the sequence's own: after the frames before it
                ended = error
            going = len(batch) == self.batch and ended is None
            if batch:
                flying.extend(self._submit_each(batch, lenient))
            while flying and (flying[0].done or not going):
                yield from self._taken(flying.popleft(), lenient)
        if ended is not None:
            raise ended

    def _taken(self, pending: Pending, lenient: bool) -> Iterator[Union[Frame, Error]]:
        try:
            yield from pending.result()
        except Error as error:
            if not lenient:
                raise
            yield from [error] * len(pending._keys)

    def _submit_each(self, batch: list[Any], lenient: bool) -> list[Pending]:
        """A batch, or where it has an image that is refused, its images one by one."""
        try:
            return [self._submit(batch)]
        except (ArgumentError, FileError, InputError, LimitError) as error:
            if len(batch) == 1:
                return [Pending(self, [None], error)]
        found = []
        for image in batch:
            found += self._submit_each([image], lenient)
            if found[-1]._error is not None and not lenient:
                break
        return found

    # ---- prompts ----

    def _check_given(self, multimask: Optional[bool]) -> None:
        if not self._given:
            raise StateError('the engine was opened for its own detections: Engine(prompts="given") takes prompts')
        if multimask is not None and bool(multimask) != self._multimask:
            raise ArgumentError(f"multimask={bool(multimask)}, the engine was opened with multimask={self._multimask}")

    def segment(
        self,
        image: Any,
        points: Any = None,
        boxes: Any = None,
        masks: Any = None,
        *,
        point_labels: Any = None,
        multimask: Optional[bool] = None,
    ) -> Frame:
        """Masks for n prompts in one image, of an engine with prompts="given".

        A prompt has points, a box, a mask, or any of them together; what is given of each kind is for the same n prompts.

        Args:
            image: pixels, as for a call.
            points: (p, 2) x y in pixels for one prompt, (n, p, 2) for n, or a list of (p, 2) with None for a prompt
                without; (.., 3) with a label.
            point_labels: (p,) or (n, p): 1 in the object, 0 not, -1 no point; default: all 1.
            boxes: (4,) or (n, 4): x0 y0 x1 y1 in pixels, or a list with None for a prompt without.
            masks: (s, s) or (n, s, s): logits, Frame.low_res of an earlier answer; needs mask_prompts=True.
            multimask: as the engine was opened, or an ArgumentError.
        Returns:
            A Frame with an object for each prompt, in order; with multimask three, Object.query which.
        """
        self._check_given(multimask)
        pixels = image.pixels if isinstance(image, Image) else image
        key = image.key if isinstance(image, Image) else None
        window = image.window if isinstance(image, Image) else None
        given = Image(pixels, key, points=points, point_labels=point_labels, boxes=boxes, masks=masks, window=window)
        if points is None and boxes is None and masks is None:
            raise ArgumentError("no prompts: give points, boxes or masks")
        return self._submit((given,)).result()[0]

    def encode(self, image: Any) -> "Embedding":
        """What the segmenter's encoder makes of an image, kept on the device: a prompt then costs the decoder alone.

        Needs prompts="given". LimitError when max_embeddings are alive.
        """
        self._check_given(None)
        self._forget_dead()
        given = image if isinstance(image, Image) else Image(image)
        struct = ffi.new("ist_image *")
        keep = fill_image(struct, Image(given.pixels, window=given.window), 0)
        embedding = Embedding(self)
        error = ffi.new("ist_error *")
        check(lib.held_encode(self._handle, struct, embedding._place, error), error)
        del keep
        return embedding

    def _forget_dead(self) -> None:
        error = ffi.new("ist_error *") if self._dead else None
        while self._dead:
            place = self._dead.popleft()
            if lib.held_forget(self._handle, place, error):
                self._dead.append(place)
                break

    # ---- the rest ----

    def reset_tracks(self) -> None:
        """Forgets all tracks: the next frame starts a new sequence. Needs match="tracks"."""
        error = ffi.new("ist_error *")
        check(lib.held_reset_tracks(self._handle, error), error)

    def assign(self, cost: ArrayLike) -> tuple[NDArray[np.int32], float]:
        """Exact minimum-cost assignment of min(rows, columns) pairs, on the device.

        Args:
            cost: (rows, columns) float32; +inf forbids a pair.
        Returns:
            (rows,) int32: the column of each row, -1 where it stays free; and the sum of the chosen costs.
        Raises:
            ArgumentError: NaN, -inf, or no complete assignment. StateError: frames are in flight.
        """
        a = np.ascontiguousarray(cost, dtype=np.float32)
        if a.ndim != 2:
            raise ArgumentError(f"a cost array of shape {a.shape}, want (rows, columns)")
        rows, columns = a.shape
        found = np.full(max(rows, 1), -1, np.int32)
        total, error = ffi.new("double *"), ffi.new("ist_error *")
        check(lib.held_assign(self._handle, ffi.cast("float *", a.ctypes.data), rows, columns, columns,
                              ffi.cast("int *", found.ctypes.data), total, error), error)
        return found[:rows], total[0]


class Embedding:
    """An encoded image on the device. It belongs to its engine; released by release(), a with statement, or when the object
    dies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._place = ffi.new("ist_embedding **")

    def predict(
        self,
        points: Any = None,
        boxes: Any = None,
        masks: Any = None,
        *,
        point_labels: Any = None,
        multimask: Optional[bool] = None,
    ) -> Frame:
        """Masks for prompts in the image: Engine.segment without the image."""
        engine = self._engine
        engine._check_given(multimask)
        if not self._place[0]:
            raise StateError("the embedding was released")
        prompts, count, keep = pack_prompts(points, point_labels, boxes, masks)
        tag = next(engine._tags)
        pending = Pending(engine, [None])
        engine._send(pending, tag, lambda error: lib.held_submit_prompts(engine._handle, self._place[0], prompts, count,
                                                                         tag, error))
        del keep
        return pending.result()[0]

    def release(self) -> None:
        """Gives its device memory back. May be called again."""
        if self._place[0]:
            self._engine._dead.append(self._place)
            self._place = ffi.new("ist_embedding **")
            self._engine._forget_dead()

    def __enter__(self) -> "Embedding":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self._place[0]:  # the engine may be at work: it is released before its next
            self._engine._dead.append(self._place)
