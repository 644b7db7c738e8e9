"""Images from folders, object stores and tar streams, decoded ahead while the engine is at work.

    for frame in engine.stream(isthmus.read_images(isthmus.list_images("s3://bucket/frames")), errors="yield"): ...

URLs are fsspec's (`pip install fsspec s3fs`); decoding is Pillow's. Neither is needed to import the package.
"""
from __future__ import annotations

import io
import os
import tarfile
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, Deque, Iterable, Iterator, Optional, Union

import numpy as np
from numpy.typing import NDArray

from .errors import FileError, InputError
from .images import Image

__all__ = ["decode", "list_images", "read_images", "read_tar"]

EXTENSIONS = (".png", ".jpg", ".jpeg")


def decode(data: Union[bytes, bytearray, memoryview]) -> NDArray[Any]:
    """The pixels of an image file's bytes, as the engine takes them. Raises InputError when they are no image."""
    import PIL.Image  # type: ignore[import-not-found,unused-ignore]

    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            mode = image.mode
            if mode in ("L", "LA", "RGB", "RGBA") or mode.startswith("I;16"):
                return np.asarray(image)
            if mode == "I":  # 16 bit, as older Pillow has it
                return np.asarray(image).clip(0, 65535).astype(np.uint16)
            return np.asarray(image.convert("L" if mode == "1" else "RGB"))
    except Exception as error:  # Pillow's plugins raise what they like
        raise InputError(f"not an image: {error}") from error


def _is_url(path: str) -> bool:
    return "://" in path


def list_images(source: Union[str, "os.PathLike[str]"], recursive: bool = False) -> list[str]:
    """The .png, .jpg and .jpeg files of a folder or of an fsspec URL, sorted by name; a file is a list of itself."""
    source = os.fspath(source)
    if _is_url(source):
        import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]

        files, root = fsspec.core.url_to_fs(source)
        found = files.find(root, maxdepth=None if recursive else 1)
        return sorted(files.unstrip_protocol(path) for path in found if path.lower().endswith(EXTENSIONS))
    if not os.path.isdir(source):
        return [source]
    found = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names
             if (recursive or folder == source) and name.lower().endswith(EXTENSIONS) and not name.startswith(".")]
    return sorted(found)


def read_bytes(path: str) -> bytes:
    """A file's bytes, from a path or an fsspec URL. Raises FileError."""
    try:
        if not _is_url(path):
            with open(path, "rb") as file:
                return file.read()
        import fsspec

        with fsspec.open(path, "rb") as file:
            data: bytes = file.read()
            return data
    except Exception as error:  # of whatever store
        raise FileError(f"{path}: {error}") from error


def _read(path: str) -> Image:
    """An image that cannot be read has the error in the place of its pixels, which the engine raises or yields."""
    try:
        return Image(decode(read_bytes(path)), key=path)
    except (FileError, InputError) as error:
        return Image(error, key=path)


def _in_order(work: Any, items: Iterable[Any], threads: int, ahead: int) -> Iterator[Image]:
    """work(item) of every item, in order, at most `ahead` of them before they are asked for."""
    waiting: Deque[Future[Image]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def read_images(paths: Iterable[Union[str, "os.PathLike[str]"]], threads: int = 4, ahead: Optional[int] = None) -> Iterator[Image]:
    """The images of files, in order, their paths as keys, decoded by threads ahead of their use.

    Args:
        paths: paths and fsspec URLs; may be endless.
        threads: that read and decode. ahead: images that are decoded and not yet asked for, default 2 * threads.
    Yields:
        isthmus.Image; one that cannot be read makes the engine raise FileError or InputError, or yield it with
        errors="yield".
    """
    return _in_order(_read, map(os.fspath, paths), threads, 2 * threads if ahead is None else ahead)


def read_tar(stream: IO[bytes], threads: int = 4, ahead: Optional[int] = None) -> Iterator[Image]:
    """The images of a tar stream (WebDataset), in order, their names in it as keys; other members are passed over.

    Args:
        stream: read once, from its beginning to its end: sys.stdin.buffer, or an fsspec file.
    Raises:
        InputError: the stream is no tar file, or ends in the middle of one; the images before come first.
    """
    def members() -> Iterator[tuple[str, bytes]]:
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as tar:
                for member in tar:
                    if member.isfile() and member.name.lower().endswith(EXTENSIONS):
                        file = tar.extractfile(member)
                        assert file is not None
                        data = file.read()
                        if len(data) != member.size:
                            raise tarfile.ReadError(f"{member.name} is cut off")
                        yield member.name, data
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InputError(f"the tar stream is damaged: {error}") from error

    def work(item: tuple[str, bytes]) -> Image:
        try:
            return Image(decode(item[1]), key=item[0])
        except InputError as error:
            return Image(error, key=item[0])

    return _after(_in_order, work, members(), threads, 2 * threads if ahead is None else ahead)


def _after(in_order: Any, work: Any, items: Iterator[Any], threads: int, ahead: int) -> Iterator[Image]:
    """What comes before a failure of the sequence itself is given first."""
    failure: list[Exception] = []

    def until_failure() -> Iterator[Any]:
        try:
            yield from items
        except InputError as error:
            failure.append(error)

    yield from in_order(work, until_failure(), threads, ahead)
    if failure:
        raise failure[0]
