"""Images from folders, object stores and tar streams."""
import io
import tarfile

import numpy as np
import PIL.Image
import pytest
from conftest import DEMO, same

import isthmus
from isthmus.files import decode


def test_a_folder_is_read_in_order_with_errors_in_place(boxes_only, frames, frame_files, tmp_path):
    (tmp_path / "in").mkdir()
    for i, path in enumerate(frame_files):
        (tmp_path / f"{i}.png").write_bytes(path.read_bytes())
    (tmp_path / "1a.png").write_bytes(b"not an image")
    (tmp_path / "in" / "9.JPG").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no image")
    paths = isthmus.list_images(tmp_path)
    assert [path[len(str(tmp_path)) + 1 :] for path in paths] == ["0.png", "1.png", "1a.png", "2.png"]
    assert isthmus.list_images(tmp_path, recursive=True) == [*paths, str(tmp_path / "in" / "9.JPG")]
    assert isthmus.list_images(paths[0]) == paths[:1]
    first, second, bad, third, gone = boxes_only.stream(
        isthmus.read_images([*paths, tmp_path / "gone.png"], threads=3), errors="yield")
    assert all(same(a, boxes_only(b)) for a, b in zip((first, second, third), frames)) and third.key == paths[3]
    assert isinstance(bad, isthmus.InputError) and "not an image" in str(bad)
    assert isinstance(gone, isthmus.FileError) and "gone.png" in str(gone)
    with pytest.raises(isthmus.InputError):
        list(boxes_only.stream(isthmus.read_images(paths)))


def test_images_are_read_as_they_are_needed(frame_files):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield frame_files[0]

    images = isthmus.read_images(endless(), threads=2, ahead=3)
    for i in range(5):
        next(images)
        assert len(taken) <= i + 1 + 3
    images.close()


@pytest.mark.parametrize(
    "mode, want",
    [("L", lambda a: a), ("RGB", lambda a: np.stack([a] * 3, -1)), ("LA", lambda a: np.stack([a, np.full_like(a, 255)], -1)),
     ("1", lambda a: np.where(a > 127, 255, 0)), ("P", lambda a: np.stack([a] * 3, -1)), ("I;16", lambda a: a.astype(np.uint16) * 257)],
)
def test_decoding_keeps_pixels(mode, want):
    gray = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    if mode == "I;16":
        image = PIL.Image.fromarray(gray.astype(np.uint16) * 257)
    elif mode == "1":
        image = PIL.Image.fromarray(gray).point(lambda v: 255 * (v > 127)).convert("1")
    else:
        image = PIL.Image.fromarray(gray).convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    found = decode(file.getvalue())
    assert found.dtype in (np.uint8, np.uint16) and np.array_equal(found, want(gray))


def tar_of(files, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Pipe(io.RawIOBase):
    """Bytes that come once, in small pieces, as from a pipe."""

    def __init__(self, data):
        self._data = io.BytesIO(data)

    def readable(self):
        return True

    def seekable(self):
        return False

    def readinto(self, out):
        return self._data.readinto(memoryview(out)[:1000])


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_stream_is_read_as_it_comes(boxes_only, frames, frame_files, mode):
    files = [(f"{i:06}.png", path.read_bytes()) for i, path in enumerate(frame_files)]
    data = tar_of([files[0], ("000000.json", b"{}"), files[1], ("bad.jpg", b"x"), files[2]], mode)
    first, second, bad, third = boxes_only.stream(isthmus.read_tar(io.BufferedReader(Pipe(data))), errors="yield")
    assert (first.key, third.key) == ("000000.png", "000002.png") and isinstance(bad, isthmus.InputError)
    assert all(same(a, boxes_only(b)) for a, b in zip((first, second, third), frames))


@pytest.mark.parametrize("end", [600, -1500])
def test_a_tar_stream_that_is_cut_off_says_so_behind_its_images(boxes_only, frame_files, end):
    data = tar_of([(f"{i}.png", path.read_bytes()) for i, path in enumerate(frame_files)])
    whole = data.rstrip(b"\0")
    before = []
    with pytest.raises(isthmus.InputError, match="tar stream"):
        for frame in boxes_only.stream(isthmus.read_tar(Pipe(whole[:end]))):
            before.append(frame.key)
    assert before == (["0.png", "1.png"] if end < 0 else [])


def test_an_object_store(boxes_only, frames, frame_files, monkeypatch):
    """moto's S3 server on this machine."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        import fsspec

        files = fsspec.filesystem("s3")
        files.mkdir("bucket")
        for i, path in enumerate(frame_files):
            files.pipe(f"bucket/frames/{i}.png", path.read_bytes())
        files.pipe("bucket/frames/deep/3.png", b"no image")
        files.pipe("bucket/all.tar", tar_of([("a.png", frame_files[0].read_bytes())]))
        urls = isthmus.list_images("s3://bucket/frames")
        assert urls == [f"s3://bucket/frames/{i}.png" for i in range(3)]
        assert len(isthmus.list_images("s3://bucket/frames", recursive=True)) == 4
        *found, gone = boxes_only.stream(isthmus.read_images([*urls, "s3://bucket/gone.png"]), errors="yield")
        assert all(same(a, boxes_only(b)) for a, b in zip(found, frames)) and [f.key for f in found] == urls
        assert isinstance(gone, isthmus.FileError)
        with fsspec.open("s3://bucket/all.tar") as stream:
            (one,) = boxes_only.stream(isthmus.read_tar(stream))
        assert one.key == "a.png" and same(one, boxes_only(frames[0]))
    finally:
        server.stop()


def test_the_demo_frames_are_listed():
    assert [path.rpartition("/")[2] for path in isthmus.list_images(DEMO)] == [f"frame-{i:03}.png" for i in range(1, 14)]
