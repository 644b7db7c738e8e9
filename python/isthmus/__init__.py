"""isthmus: find objects in a frame, match them, cut out their masks, on any OpenCL device.

    import isthmus
    engine = isthmus.Engine()
    print(engine(pixels).names)
"""
from ._lib import lib as _lib, text_of as _text_of
from .devices import Device, devices
from .engine import DEMO, Embedding, Engine, EngineInfo, Pending, weights
from .errors import (
    ArgumentError, BuildError, DeviceError, DeviceMemoryError, Error, FileError, HostMemoryError, InputError, LimitError,
    NoDeviceError, StateError, UnsupportedError, WeightsError,
)
from .files import list_images, read_images, read_tar
from .images import Image
from .results import Frame, Object, PackedMask, Times, Transfers, Trust

__version__ = _text_of(_lib.ist_version())
__all__ = [
    "ArgumentError", "BuildError", "DEMO", "Device", "DeviceError", "DeviceMemoryError", "Embedding", "Engine",
    "EngineInfo", "Error", "FileError", "Frame", "HostMemoryError", "Image", "InputError", "LimitError", "NoDeviceError",
    "Object", "PackedMask", "Pending", "StateError", "Times", "Transfers", "Trust", "UnsupportedError", "WeightsError", "devices",
    "list_images", "read_images", "read_tar", "weights",
]
