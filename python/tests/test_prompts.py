"""Prompts: the masks of isthmus segment; an embedding answers as its image does."""
import json

import numpy as np
import pytest
from conftest import full, run_program, same

import isthmus

SIZE = 256  # of the segmenter's input: quick


@pytest.fixture(scope="module")
def given():
    with isthmus.Engine(prompts="given", segmenter_size=SIZE, low_res=True, mask_prompts=True, max_embeddings=2) as engine:
        yield engine


BOXES = [[80, 57, 178, 146], [181, 83, 262, 126]]
POINTS = [[[120, 90], [30, 30]], [[220, 100], [90, 300]]]
LABELS = [[1, 0], [1, -1]]


def test_masks_are_those_of_the_program(given, frames, frame_files, tmp_path):
    prompts = [{"box": BOXES[0], "points": [[120, 90, 1], [30, 30, 0]]}, {"box": BOXES[1], "points": [[220, 100, 1]]}]
    (tmp_path / "p.json").write_text(json.dumps({frame_files[0].name: prompts}))
    run_program("segment", frame_files[0], "--points", tmp_path / "p.json", "--segmenter-size", SIZE, "-o", tmp_path / "out",
                "--quiet", "--save", "ndjson")
    line = json.loads((tmp_path / "out" / "frames.ndjson").read_text())
    frame = given.segment(frames[0], points=POINTS, point_labels=LABELS, boxes=BOXES)
    assert [frame.rle(i) for i in range(2)] == [o["rle"] for o in line["objects"]] and min(frame.areas) > 0
    assert frame.matches.tolist() == [0, 1] and frame.boxes.tolist() == BOXES


def test_an_embedding_answers_as_its_image(given, frames):
    with given.encode(frames[0]) as embedding:
        whole = given.segment(frames[0], boxes=BOXES)
        assert same(embedding.predict(boxes=BOXES), whole)
        assert same(embedding.predict(boxes=BOXES[1]), given.segment(frames[0], boxes=BOXES[1]))
        one = embedding.predict(points=[120, 90])
        assert len(one) == 1
        for points in ([[120, 90, 1]], [[[120, 90]]], [np.array([[120, 90]])]):
            assert np.array_equal(embedding.predict(points=points).low_res, one.low_res)
        assert not np.array_equal(embedding.predict(points=[120, 90], point_labels=[0]).low_res, one.low_res)
        assert one.low_res.shape == (1, SIZE // 4, SIZE // 4) and one.low_res.dtype == np.float32
        refined = embedding.predict(points=[120, 90], masks=one.low_res)
        assert len(refined) == 1 and not np.array_equal(refined.low_res, one.low_res)
        mixed = embedding.predict(points=[None, [[220, 100], [90, 300]]], boxes=[BOXES[0], None])
        assert mixed.rle(0) == whole.rle(0) and mixed.boxes[1].tolist() == [0, 0, 0, 0]
    with pytest.raises(isthmus.StateError, match="released"):
        embedding.predict(boxes=BOXES)


def test_embeddings_are_released_when_they_die(given, frames):
    for _ in range(4):
        kept = given.encode(frames[0])
        other = given.encode(frames[1])
        with pytest.raises(isthmus.LimitError):
            given.encode(frames[2])
        assert len(kept.predict(boxes=BOXES)) == 2
        del kept, other


def test_multimask_gives_three(frames):
    with isthmus.Engine(prompts="given", segmenter_size=SIZE, multimask=True) as engine:
        frame = engine.segment(frames[0], boxes=BOXES, multimask=True)
        assert frame.queries.tolist() == [0, 1, 2, 0, 1, 2] and frame.matches.tolist() == [0, 0, 0, 1, 1, 1]
        with pytest.raises(isthmus.ArgumentError, match="multimask=False"):
            engine.segment(frames[0], boxes=BOXES, multimask=False)


@pytest.mark.parametrize(
    "prompts, sentence",
    [
        ({}, "no prompts"),
        ({"boxes": [[0, 0, 1]]}, "(3,)"),
        ({"boxes": BOXES, "points": [[1, 2]]}, "unequal numbers: 1 points, 2 boxes"),
        ({"points": [[1, 2, 3, 4]]}, "(1, 4)"),
        ({"points": [[1, 2, 5]]}, "label"),
        ({"points": [[1, 2]], "point_labels": [1, 0]}, "2 labels"),
        ({"boxes": BOXES, "point_labels": [[1], [1]]}, "point_labels"),
        ({"points": [[1, float("inf")]]}, "not a number"),
        ({"points": "everywhere"}, "not numbers"),
        ({"points": np.zeros((1, 12, 2))}, "12 points"),
        ({"masks": np.zeros((3, 3))}, "3 x 3"),
        ({"masks": np.zeros((2, 2, 3, 3))}, "(2, 3, 3)"),
        ({"boxes": np.zeros((17, 4))}, "17 prompts"),
    ],
)
def test_wrong_prompts_are_errors_with_a_sentence(given, frames, prompts, sentence):
    with pytest.raises(ValueError) as caught:
        given.segment(frames[0], **prompts)
    assert isinstance(caught.value, isthmus.Error) and sentence in str(caught.value)


def test_an_engine_of_detections_takes_no_prompts(boxes_only, frames):
    with pytest.raises(isthmus.StateError, match="prompts="):
        boxes_only.segment(frames[0], boxes=BOXES)
    with pytest.raises(isthmus.StateError, match="prompts="):
        boxes_only.encode(frames[0])


@full
def test_masks_of_everything_are_those_of_the_program(frames, frame_files, tmp_path):
    run_program("segment", frame_files[0], "--everything", "--points-per-side", 4, "--pred-iou-thresh", 0,
                "--stability-score-thresh", 0, "--segmenter-size", SIZE, "-o", tmp_path / "out", "--quiet", "--save", "ndjson")
    line = json.loads((tmp_path / "out" / "frames.ndjson").read_text())
    parameters = {"points_per_side": 4, "pred_iou_thresh": 0, "stability_score_thresh": 0}
    with isthmus.Engine(prompts="everything", everything=parameters, segmenter_size=SIZE) as engine:
        frame = engine(frames[0])
    assert [frame.rle(i) for i in range(len(frame))] == [o["rle"] for o in line["objects"]] and len(frame) > 0
    assert frame.points.shape == (len(frame), 2) and frame.crop_boxes[0].tolist() == [0, 0, 282, 372]
