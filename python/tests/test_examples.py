"""The examples, run as a reader would run them."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name, *args):
    return subprocess.run([sys.executable, EXAMPLES / name, *map(str, args)], capture_output=True, text=True, timeout=600)


def test_folder_to_coco(frame_files, predicted, tmp_path):
    for path in frame_files:
        shutil.copy(path, tmp_path)
    (tmp_path / "zz.png").write_bytes(b"not an image")
    done = run_example("folder_to_coco.py", tmp_path, tmp_path / "out.json")
    assert done.returncode == 0 and "3 images" in done.stdout and "1 failed" in done.stdout, done.stderr
    assert done.stderr.count("zz.png: ") == 2
    assert json.loads((tmp_path / "out.json").read_text()) == predicted[1]


def test_track(frame_files, boxes_only, frames, tmp_path):
    for i in range(2):
        shutil.copy(frame_files[0], tmp_path / f"{i}.png")
    done = run_example("track.py", tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()]
    found = boxes_only(frames[0])
    assert [line[0] for line in lines] == ["0.png"] * len(found) + ["1.png"] * len(found), done.stderr
    assert [line[1:] for line in lines[: len(found)]] == [line[1:] for line in lines[len(found) :]]
    assert [line[3:] for line in lines[: len(found)]] == [[f"{v:.1f}" for v in box] for box in found.boxes]


def test_cut_out(frame_files, tmp_path):
    done = run_example("cut_out.py", frame_files[0], tmp_path / "out.png", 80, 57, 178, 146, 120, 90)
    mask = np.asarray(Image.open(tmp_path / "out.png"))
    first, then = (int(word) for word in done.stdout.replace(",", "").split() if word.isdigit())
    assert mask.shape == (372, 282) and (mask == 255).sum() == then and first > 0, done.stderr
