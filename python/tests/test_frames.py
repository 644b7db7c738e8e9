"""Images in, frames out: the values of isthmus predict, whatever the layout of the array."""
import gc

import numpy as np
import pytest
from conftest import full, same

import isthmus


def runs_to_mask(rle):
    """COCO's compressed RLE, decoded as pycocotools does (its rleFrString)."""
    counts, at, text = [], 0, rle["counts"]
    while at < len(text):
        value, shift, more = 0, 0, True
        while more:
            digit = ord(text[at]) - 48
            value |= (digit & 31) << shift
            more, at, shift = bool(digit & 32), at + 1, shift + 5
            if not more and digit & 16:
                value |= -1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    height, width = rle["size"]
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(width, height).T


def test_frames_are_those_of_the_program(engine, frames, predicted):
    lines, results = predicted
    found = engine(frames)
    assert [len(frame) for frame in found] == [len(line["objects"]) for line in lines] and sum(map(len, found)) >= 3
    assert [entry for i, frame in enumerate(found, 1) for entry in frame.to_coco(i)] == results
    for frame, line in zip(found, lines):
        assert (frame.width, frame.height) == (line["width"], line["height"])
        assert frame.transfers.writes == frame.transfers.reads == frame.transfers.waits == 1
        for o, want in zip(frame, line["objects"]):
            assert (o.label, o.name, o.area) == (want["label"], want["name"], want["area"])
            assert [float(str(v)) for v in o.box] == want["box"]
            assert np.float32(o.mask_score) == np.float32(want["mask_score"])
            mask = runs_to_mask(want["rle"])
            assert o.mask.dtype == bool and np.array_equal(o.mask, mask) and mask.sum() == o.area
            x0, y0, x1, y1 = o.mask_box
            assert np.array_equal(np.argwhere(mask).min(0), (y0, x0)) and np.array_equal(np.argwhere(mask).max(0), (y1, x1))
        assert np.array_equal(frame.masks, [o.mask for o in frame])


def test_one_image_is_one_frame(boxes_only, frames):
    one = boxes_only(frames[1])
    assert isinstance(one, isthmus.Frame) and same(one, boxes_only(frames)[1])
    assert one.masks is None and "segmentation" not in one.to_coco(7)[0] and one.to_coco(7, {0: 5, 1: 6, 2: 7})
    assert boxes_only([]) == []


@pytest.mark.parametrize(
    "layout",
    [
        lambda a: a[..., None],
        lambda a: np.stack([a, a, a], -1),
        lambda a: np.dstack([a, np.full_like(a, 9)]),
        lambda a: np.dstack([a, a, a, np.full_like(a, 9)]),
        lambda a: a.astype(np.uint16) * 257,
        lambda a: (a.astype(np.uint16) * 257).astype(">u2"),
        lambda a: np.asfortranarray(a),
        lambda a: a[::-1].copy()[::-1],
        lambda a: a[:, ::-1].copy()[:, ::-1],
        lambda a: np.pad(a, ((3, 2), (5, 7)))[3:-2, 5:-7],
        lambda a: np.repeat(a, 2, 1)[:, ::2],
        lambda a: np.repeat(a, 2, 0)[::2],
        lambda a: np.stack([a, a, a], 0).transpose(1, 2, 0),
        lambda a: np.broadcast_to(a[..., None], (*a.shape, 3)),
        lambda a: np.frombuffer(a.tobytes(), np.uint8).reshape(a.shape),
        lambda a: np.pad(a.astype(np.uint16) * 257, 4)[4:-4, 4:-4],
        lambda a: a.tolist() and memoryview(a),
    ],
)
def test_every_layout_of_the_same_pixels_gives_the_same(boxes_only, frames, layout):
    assert same(boxes_only(layout(frames[0])), boxes_only(frames[0]))
    assert len(boxes_only(frames[0])) >= 1


def test_rows_that_lie_apart_are_not_copied(frames):
    from isthmus.images import _pixels

    whole = np.zeros((40, 60, 3), np.uint8)
    crop = whole[4:20, 8:30]
    read, _, stride = _pixels(crop)
    assert np.shares_memory(read, whole) and stride == 180
    assert not np.shares_memory(_pixels(crop[:, ::-1])[0], whole)
    assert _pixels(whole[5:6, 3:9])[2] == 18


@pytest.mark.parametrize(
    "pixels, sentence",
    [
        (np.zeros((4, 4), np.float32), "float32"),
        (np.zeros((4, 4), bool), "bool"),
        (np.zeros((4, 4, 5), np.uint8), "(4, 4, 5)"),
        (np.zeros((4, 4, 0), np.uint8), "(4, 4, 0)"),
        (np.zeros(16, np.uint8), "(16,)"),
        (np.zeros((0, 5), np.uint8), "5 x 0"),
        (np.zeros((70000, 1), np.uint8), "65536"),
        ("frame.png", "shape ()"),
        (None, "shape ()"),
    ],
)
def test_what_is_no_image_is_an_error_with_a_sentence(boxes_only, frames, pixels, sentence):
    with pytest.raises(ValueError, match="image 0: ") as caught:
        boxes_only(pixels)
    assert sentence in str(caught.value) and isinstance(caught.value, isthmus.Error)
    assert caught.value.status in ("IST_E_ARGUMENT", "IST_E_LIMIT")
    assert len(boxes_only(frames[0])) >= 1


def test_a_stream_keeps_order_and_keys(frames):
    with isthmus.Engine(segmenter=None, batch=2, frames_in_flight=3, input_size=256) as engine:
        alone = [engine(frame) for frame in frames]
        taken = []

        def source():
            for i in range(11):
                taken.append(i)
                yield isthmus.Image(frames[i % 3], key=i)

        seen = []
        for frame in engine.stream(source()):
            assert len(taken) <= len(seen) + 2 * 4 + 2  # images are taken as they are needed
            assert same(frame, alone[frame.key % 3])
            seen.append(frame.key)
            if frame.key == 4:
                assert same(engine(frames[0]), alone[0])  # between two frames of a stream
        assert seen == list(range(11))


def test_a_refused_image_ends_a_stream_behind_the_frames_before_it_or_takes_its_place(boxes_only, frames):
    bad = np.zeros((4, 4), np.float64)
    images = [frames[0], bad, frames[1]]
    before = []
    with pytest.raises(isthmus.ArgumentError, match="float64"):
        for frame in boxes_only.stream(images):
            before.append(frame)
    assert len(before) == 1 and same(before[0], boxes_only(frames[0]))
    first, second, third = boxes_only.stream(images, errors="yield")
    assert same(first, before[0]) and isinstance(second, isthmus.ArgumentError) and same(third, boxes_only(frames[1]))

    def broken():
        yield frames[0]
        raise OSError("no more")

    before = []
    with pytest.raises(OSError, match="no more"):
        for frame in boxes_only.stream(broken()):
            before.append(frame)
    assert len(before) == 1
    with pytest.raises(isthmus.ArgumentError, match="errors"):
        boxes_only.stream(images, errors="ignore")


def test_a_refused_image_of_a_batch_takes_none_with_it(frames):
    with isthmus.Engine(segmenter=None, batch=3, input_size=256, max_pixels=200000) as engine:
        alone = engine(frames[0])
        images = [frames[0], np.zeros((500, 500), np.uint8), frames[0], frames[0]]
        found = list(engine.stream(images, errors="yield"))
        assert [isinstance(f, isthmus.LimitError) for f in found] == [False, True, False, False]
        assert all(same(f, alone) for f in found if not isinstance(f, isthmus.LimitError))


def test_results_outlive_the_engine(frames):
    engine = isthmus.Engine(segmenter=None, input_size=256, conf=0.2)
    pending = engine.submit(frames[0])
    assert not pending.done
    frame = pending.result()[0]
    boxes, copies = frame.boxes, frame.boxes.tolist()
    engine.close()
    del engine, pending, frame
    gc.collect()
    assert copies and boxes.tolist() == copies


def test_tracks_and_targets(frames, boxes_only):
    found = boxes_only(frames[0])
    with isthmus.Engine(segmenter=None, match="tracks") as engine:
        first, again = engine([frames[0], frames[0]])
        assert again.matches.tolist() == first.matches.tolist() and min(first.matches) >= 1 and first.tracked
        engine.reset_tracks()
        assert min(engine(frames[0]).matches) >= 1
    with isthmus.Engine(segmenter=None, match="targets") as engine:
        targets = found.boxes[::-1]
        frame = engine(isthmus.Image(frames[0], targets=targets))
        assert frame.matches.tolist() == list(range(len(found)))[::-1] and np.all(frame.match_ious > 0.99)
        with pytest.raises(isthmus.ArgumentError, match="targets of shape"):
            engine(isthmus.Image(frames[0], targets=np.zeros((2, 3))))
        with pytest.raises(isthmus.ArgumentError, match="not a number"):
            engine(isthmus.Image(frames[0], targets=[[0, 0, float("nan"), 1]]))


@full
def test_trust_of_tracks_outlives_its_frame(frames):
    with isthmus.Engine(match="tracks", trust={"weights": 1}, segmenter_size=256) as engine:
        first, again = engine([frames[0], frames[0]])
    assert len(again.trust) == len(again) >= 1 and first._trust.dtype == again._trust.dtype
    for t in again.trust:
        o = again.objects[t.object]
        assert t.track == o.match and t.state in ("lost", "relocalizing", "visible")
        assert t.s == pytest.approx(np.mean([t.sharpness, t.contrast, t.continuity, t.stability]), abs=1e-5)
        assert t.c == pytest.approx(np.mean([t.geometry, t.appearance, t.depth]), abs=1e-5)
        bits = sum(bin(word).count("1") for word in t.inside.bits.ravel().tolist())
        assert 0 < bits < o.area < bits + sum(bin(word).count("1") for word in t.edge.bits.ravel().tolist())
    with isthmus.Engine(segmenter=None, input_size=256) as engine:
        assert engine(frames[0]).trust == []


def test_assignment_is_the_least():
    with isthmus.Engine(detector=None, segmenter=None) as engine:
        columns, total = engine.assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
        assert columns.tolist() == [1, 0, 2] and total == 5
        with pytest.raises(isthmus.ArgumentError):
            engine.assign([[np.nan]])
        with pytest.raises(isthmus.StateError, match="without a model"):
            engine(np.zeros((4, 4), np.uint8))


def test_pillow_images_but_no_palettes(boxes_only, frames):
    import PIL.Image

    image = PIL.Image.fromarray(frames[0])
    assert same(boxes_only(image), boxes_only(frames[0])) and same(boxes_only(image.convert("RGB")), boxes_only(frames[0]))
    with pytest.raises(isthmus.ArgumentError, match="palette"):
        boxes_only(image.convert("P"))


def test_detections_for_supervision(engine, frames):
    pytest.importorskip("supervision")
    frame = engine(frames[0])
    found = frame.to_supervision()
    assert len(found) == len(frame) and np.array_equal(found.xyxy, frame.boxes) and np.array_equal(found.mask, frame.masks)
    assert found.class_id.tolist() == frame.labels.tolist() and found.confidence.tolist() == frame.scores.tolist()
    assert found.data["class_name"].tolist() == frame.names and found.tracker_id is None
    assert len(engine(np.zeros((32, 32), np.uint8)).to_supervision()) == 0


def test_windows_of_uint16(frames, boxes_only):
    gray = frames[0] if frames[0].ndim == 2 else frames[0][..., 0]
    deep = 300 + gray.astype(np.uint16) * 13
    with pytest.raises(isthmus.ArgumentError, match="config.window"):
        boxes_only(isthmus.Image(deep, window=(300, 3615)))
    with isthmus.Engine(segmenter=None, window="auto") as automatic:
        given, found = automatic(isthmus.Image(deep, window=(300, 3615))), automatic(deep)
        assert same(given, boxes_only(gray)) and len(given) >= 1 and given.window == (300, 3615)
        low, high = np.sort(deep, axis=None)[[deep.size // 200, -1 - deep.size // 200]]
        assert found.window == (low, high) and automatic(gray).window is None
        for wrong in ((300, 200), (0, 0), (1,), 7, (0, 2**40)):
            with pytest.raises(isthmus.ArgumentError, match="window"):
                automatic(isthmus.Image(deep, window=wrong))
