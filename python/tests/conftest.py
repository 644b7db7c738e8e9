"""Engines and frames that tests share. PoCL runs them; opening and compiling take longest, so that each engine is opened
once."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import isthmus

CYCLES = int(os.environ.get("ISTHMUS_CYCLES", "8"))  # engines opened and closed; the whole promise is 1000
FRAMES = int(os.environ.get("ISTHMUS_FRAMES", "60"))  # through one engine; the whole promise is 100,000
full = pytest.mark.skipif(CYCLES < 1000, reason="compiles kernels of its own for long: with ISTHMUS_CYCLES=1000")
PROGRAM = Path(isthmus.__file__).parent / "_native" / "isthmus"
DEMO = Path(isthmus.weights("demo"))


def run_program(*args):
    """The program that comes with the package, as a user starts it."""
    environment = dict(os.environ, ISTHMUS_WEIGHTS_DIR=isthmus.weights())
    return subprocess.run([PROGRAM, *map(str, args)], env=environment, capture_output=True, text=True, check=True)


@pytest.fixture(scope="session")
def frames():
    """Three demo frames: (height, width) or (height, width, 3) uint8; the first is gray."""
    return [np.asarray(PIL.Image.open(DEMO / f"frame-{i:03}.png")) for i in (1, 4, 9)]


@pytest.fixture(scope="session")
def frame_files():
    return [DEMO / f"frame-{i:03}.png" for i in (1, 4, 9)]


@pytest.fixture(scope="session")
def predicted(frame_files, tmp_path_factory):
    """What isthmus predict writes for the frames: its lines, its COCO results."""
    out = tmp_path_factory.mktemp("predict")
    run_program("predict", *frame_files, "-o", out, "--save", "json,ndjson", "--quiet")
    lines = [json.loads(line) for line in (out / "frames.ndjson").read_text().splitlines()]
    return lines, json.loads((out / "results.json").read_text())


@pytest.fixture(scope="session")
def engine():
    """The engine that isthmus predict opens."""
    with isthmus.Engine() as opened:
        yield opened


@pytest.fixture(scope="session")
def boxes_only():
    """Detector alone, quick."""
    with isthmus.Engine(segmenter=None) as opened:
        yield opened


def same(a, b):
    """Whether two frames say the same, masks and all."""
    assert a.boxes.tolist() == b.boxes.tolist() and a.scores.tolist() == b.scores.tolist()
    assert a.names == b.names and a.areas.tolist() == b.areas.tolist()
    assert [a.rle(i) for i in range(len(a))] == [b.rle(i) for i in range(len(b))]
    return True
