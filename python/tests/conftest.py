"""Engines and frames that tests share. PoCL runs them; opening and compiling take longest, so that each engine is opened
once."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import isthmus

PROGRAM = Path(isthmus.__file__).parent / "_native" / "isthmus"
DEMO = Path(isthmus.weights("demo"))


def run_program(*args):
    """The program that comes with the package, as a user starts it."""
    environment = dict(os.environ, ISTHMUS_WEIGHTS_DIR=isthmus.weights())
    return subprocess.run([PROGRAM, *map(str, args)], env=environment, capture_output=True, text=True, check=True)


def read_png(path):
    """The gray 8-bit PNGs of the demo frames, without a package for it."""
    import struct
    import zlib

    data = Path(path).read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    assert (depth, interlaced) == (8, 0) and color in (0, 2)
    channels = 3 if color == 2 else 1
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height + 1, width * channels + channels), np.uint8)
    for y, row in enumerate(rows, 1):
        kind, line, above = row[0], row[1:], out[y - 1]
        for x in range(width * channels):
            a, b, c = int(out[y, x]), int(above[x + channels]), int(above[x])
            p = a + b - c
            paeth = min((a, b, c), key=lambda v: abs(p - v))
            out[y, x + channels] = (int(line[x]) + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
    return np.ascontiguousarray(out[1:, channels:].reshape(height, width, channels).squeeze())


@pytest.fixture(scope="session")
def frames():
    """Three demo frames: (height, width) uint8."""
    return [read_png(DEMO / f"frame-{i:03}.png") for i in (1, 4, 9)]


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
