"""Ray Data on a local cluster of two nodes: the rows of isthmus predict, also when an actor or a node is killed."""
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO, run_program

import isthmus

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pytest.importorskip("pyarrow")
from ray.cluster_utils import Cluster  # noqa: E402

from isthmus.ray import SCHEMA, Predictor  # noqa: E402

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test

EXAMPLES = Path(__file__).parent.parent / "examples"
OPTIONS = {"segmenter_size": 256}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Frames of several sizes and one file that is no image."""
    out = tmp_path_factory.mktemp("ray") / "in"
    out.mkdir()
    for path in sorted(DEMO.glob("*.png")):
        shutil.copy(path, out)
    (out / "bad.png").write_bytes(b"not an image")
    return out


@pytest.fixture(scope="module")
def lines(folder, tmp_path_factory):
    """frames.ndjson of isthmus predict, by file."""
    out = tmp_path_factory.mktemp("predict")
    images = sorted(path for path in folder.iterdir() if path.name != "bad.png")
    run_program("predict", *images, "-o", out, "--save", "ndjson", "--segmenter-size", OPTIONS["segmenter_size"], "--quiet")
    found = [json.loads(line) for line in (out / "frames.ndjson").read_text().splitlines()]
    return {line["file"]: line for line in found}


@pytest.fixture
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "object_store_memory": 80 << 20})
    made.other = made.add_node(num_cpus=1, resources={"other": 1}, object_store_memory=80 << 20)
    ray.init(address=made.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield made
    ray.shutdown()
    made.shutdown()


class Dying(Predictor):
    """Ends its process in the middle of its first batch, once."""

    def __init__(self, mark, **options):
        super().__init__(**options)
        self._mark = mark

    def __call__(self, batch):
        found = super().__call__(batch)
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return found
        os._exit(1)


class Waiting(Predictor):
    """On the node that will be killed it says that it is at work, and does not come back."""

    def __init__(self, mark, node, **options):
        super().__init__(**options)
        self._mark, self._doomed = mark, ray.get_runtime_context().get_node_id() == node

    def __call__(self, batch):
        found = super().__call__(batch)
        if self._doomed:
            open(self._mark, "w").close()
            time.sleep(3600)
        return found


def predict(folder, predictor, **options):
    files = ray.data.read_binary_files(str(folder), include_paths=True, override_num_blocks=7)
    return files.map_batches(predictor, fn_constructor_kwargs={**OPTIONS, **options}, concurrency=2, batch_size=2, num_cpus=1)


def check(rows, lines):
    """None lost, none twice, and what isthmus predict says."""
    assert sorted(row["path"] for row in rows if row["error"] is None) == sorted(lines)
    (bad,) = (row for row in rows if row["error"] is not None)
    assert bad["path"].endswith("bad.png") and "not an image" in bad["error"] and bad["width"] is None
    for row in rows:
        if row is bad:
            continue
        objects = lines[row["path"]]["objects"]
        assert (row["width"], row["height"]) == (lines[row["path"]]["width"], lines[row["path"]]["height"])
        assert list(row["names"]) == [o["name"] for o in objects]
        assert np.array_equal(np.array([list(b) for b in row["boxes"]], np.float32), np.float32([o["box"] for o in objects]))
        assert [{"size": list(m["size"]), "counts": m["counts"]} for m in row["masks"]] == [o["rle"] for o in objects]
        assert list(row["areas"]) == [o["area"] for o in objects]


def test_rows_are_those_of_the_program_and_survive_parquet(cluster, folder, lines, tmp_path):
    predict(folder, Predictor).write_parquet(str(tmp_path))
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(str(tmp_path))
    check(table.to_pylist(), lines)
    assert set(SCHEMA.names) | {"path"} == set(table.column_names)


def test_a_killed_actor_loses_no_row(cluster, folder, lines, tmp_path):
    check(predict(folder, Dying, mark=str(tmp_path / "died")).take_all(), lines)
    assert (tmp_path / "died").exists()


def test_a_killed_node_loses_no_row(cluster, folder, lines, tmp_path):
    mark = tmp_path / "at work"

    def kill():
        while not mark.exists():
            time.sleep(0.05)
        cluster.remove_node(cluster.other, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows = predict(folder, Waiting, mark=str(mark), node=cluster.other.node_id).take_all()
    killer.join(60)
    assert mark.exists() and not killer.is_alive()
    check(rows, lines)


def test_arrays_without_ray(frames):
    """The class alone: arrays of several sizes, a bad one, columns that are kept."""
    images = np.empty(3, object)
    images[:] = [frames[0], np.zeros((2, 2), np.float32), frames[1]]
    predictor = Predictor(column="image", segmenter=None, input_size=256)
    table = predictor({"image": images, "id": np.array([7, 8, 9])})
    assert table.column_names[0] == "id" and table["id"].to_pylist() == [7, 8, 9]
    assert [error is None for error in table["error"].to_pylist()] == [True, False, True]
    assert table["masks"].to_pylist() == [None] * 3 and table["height"].to_pylist() == [372, None, frames[1].shape[0]]
    with isthmus.Engine(segmenter=None, input_size=256) as engine:
        assert table["scores"].to_pylist()[0] == engine(frames[0]).scores.tolist()


def test_the_example_writes_coco_of_a_bucket(frame_files, predicted, tmp_path, monkeypatch):
    """From moto's S3 server to COCO results, a cluster of its own."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_DEFAULT_REGION", "us-east-1"),
                            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"), ("AWS_EC2_METADATA_DISABLED", "true")):
            monkeypatch.setenv(name, value)
        import boto3

        store = boto3.client("s3")
        store.create_bucket(Bucket="bucket")
        for i, path in enumerate(frame_files):
            store.put_object(Bucket="bucket", Key=f"frames/{i}.png", Body=path.read_bytes())
        store.put_object(Bucket="bucket", Key="frames/9.png", Body=b"no image")
        done = subprocess.run([sys.executable, EXAMPLES / "ray_folder.py", "s3://bucket/frames", tmp_path / "out.json"],
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and "3 images" in done.stdout and "1 failed" in done.stdout, done.stderr[-3000:]
    finally:
        server.stop()
    found = json.loads((tmp_path / "out.json").read_text())
    assert [entry["segmentation"] for entry in found] == [entry["segmentation"] for entry in predicted[1]]
    assert [entry["image_id"] for entry in found] == [entry["image_id"] for entry in predicted[1]]
    assert [entry["score"] for entry in found] == [float(np.float32(entry["score"])) for entry in predicted[1]]
    (failed,) = json.loads((tmp_path / "out.failed.json").read_text())
    assert failed["file"] == "bucket/frames/9.png" and "not an image" in failed["error"]
