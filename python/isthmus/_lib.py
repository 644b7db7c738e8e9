"""The C module, and what every other one needs of it."""
from __future__ import annotations

import os
from typing import Any

try:
    from ._native._engine import ffi, lib  # type: ignore[import-not-found]
except ImportError as error:
    if "libOpenCL" not in str(error):
        raise
    raise ImportError(
        "OpenCL's ICD loader, libOpenCL.so.1, is not installed (Debian and Ubuntu: ocl-icd-libopencl1); "
        "a driver is needed too (pocl-opencl-icd for CPUs, the vendor's for GPUs)"
    ) from error

from .errors import Error

__all__ = ["check", "choice", "ffi", "fields_of", "lib", "package_file", "text_of"]


def text_of(chars: Any) -> str:
    text: bytes = ffi.string(chars)
    return text.decode("utf-8", "replace")


def check(status: int, error: Any) -> None:
    """Raises what a C function says by its status and its ist_error."""
    if status:
        raise Error.of(status, text_of(error.text))


def package_file(*parts: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *parts)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def choice(ctype: Any, value: Any, what: str) -> int:
    """The number of an enum's value by the end of its name: "fp16" or "FP16" of IST_PRECISION_FP16."""
    values: dict[int, str] = ctype.elements
    prefix = os.path.commonprefix(list(values.values()))
    prefix = prefix[: prefix.rfind("_") + 1]
    names = {text[len(prefix) :].lower(): number for number, text in values.items()}
    if isinstance(value, str):
        for name, number in names.items():
            if _plain(name) == _plain(value):
                return number
    raise Error.of(lib.IST_E_ARGUMENT, f"{what} is {value!r}, want one of {', '.join(map(repr, names))}")


def fields_of(struct: Any) -> dict[str, Any]:
    """A C struct of numbers and strings as a dict."""
    found = {}
    for name, field in ffi.typeof(struct).fields:
        value = getattr(struct, name)
        found[name] = text_of(value) if field.type.kind == "array" and field.type.item.cname == "char" else value
    return found
