"""Exceptions: one class for each kind of failure, with the engine's sentence."""
from __future__ import annotations

__all__ = [
    "ArgumentError", "BuildError", "DeviceError", "DeviceMemoryError", "Error", "FileError", "HostMemoryError",
    "InputError", "LimitError", "NoDeviceError", "StateError", "UnsupportedError", "WeightsError",
]

_classes: dict[int, type["Error"]] = {}


class Error(Exception):
    """A failure of the engine: `str()` is one sentence with the numbers in it.

    Attributes:
        code: the ist_status of include/isthmus.h, for example 5.
        status: its name, for example "IST_E_WEIGHTS".
    """

    code: int = 0
    status: str = ""

    def __init_subclass__(cls, code: int, status: str) -> None:
        cls.code, cls.status = code, status
        _classes[code] = cls

    @staticmethod
    def of(code: int, sentence: str) -> "Error":
        """The exception for a status code."""
        found = _classes.get(code)
        if found:
            return found(sentence)
        error = Error(sentence)
        error.code = code
        return error


class ArgumentError(Error, ValueError, code=1, status="IST_E_ARGUMENT"):
    """An argument is out of range, of a wrong shape or type."""


class HostMemoryError(Error, MemoryError, code=2, status="IST_E_MEMORY"):
    """Out of host memory."""


class FileError(Error, code=3, status="IST_E_IO"):
    """A file could not be read or written."""


class InputError(Error, ValueError, code=4, status="IST_E_INPUT"):
    """The input is not a valid image or document."""


class WeightsError(Error, code=5, status="IST_E_WEIGHTS"):
    """The checkpoint is damaged or does not fit."""


class NoDeviceError(Error, code=6, status="IST_E_NO_DEVICE"):
    """No usable OpenCL device."""


class DeviceError(Error, RuntimeError, code=7, status="IST_E_DEVICE"):
    """An OpenCL call failed; the engine cannot be used any more."""


class DeviceMemoryError(Error, RuntimeError, code=8, status="IST_E_DEVICE_MEMORY"):
    """Out of device memory."""


class BuildError(Error, RuntimeError, code=9, status="IST_E_BUILD"):
    """A kernel did not build."""


class LimitError(Error, ValueError, code=10, status="IST_E_LIMIT"):
    """A size exceeds a limit."""


class StateError(Error, RuntimeError, code=11, status="IST_E_STATE"):
    """The call is out of order: a closed engine, one of the parent's after fork(), one that another thread is in."""


class UnsupportedError(Error, code=12, status="IST_E_UNSUPPORTED"):
    """Not supported on this device or by this model."""
