"""The OpenCL devices of this machine."""
from __future__ import annotations

from dataclasses import dataclass

from ._lib import check, ffi, fields_of, lib

__all__ = ["Device", "devices"]


@dataclass(frozen=True)
class Device:
    """One OpenCL device.

    Attributes:
        index: place in the flat list over all platforms; as a string a SPEC for Engine's `device`.
        platform, device: number of the platform, and within it.
        type: "cpu", "gpu" or "other".
        is_default: whether an engine takes it when none is named.
        name, vendor, platform_name, driver, version: what OpenCL says.
        uuid: hexadecimal; "" when the device does not tell.
        compute_units: of the device.
        global_bytes, max_alloc_bytes: device memory, largest single buffer, in bytes.
    """

    index: int
    platform: int
    device: int
    type: str
    is_default: bool
    name: str
    vendor: str
    platform_name: str
    driver: str
    version: str
    uuid: str
    compute_units: int
    global_bytes: int
    max_alloc_bytes: int


def device_of(info: object) -> Device:
    """A Device from an ist_device_info."""
    facts = fields_of(info)
    kinds = {lib.IST_DEVICE_CPU: "cpu", lib.IST_DEVICE_GPU: "gpu"}
    facts["type"] = kinds.get(facts["type"], "other")
    facts["is_default"] = bool(facts["is_default"])
    return Device(**facts)


def devices() -> list[Device]:
    """The OpenCL devices of this machine, [] without a driver. Raises Error when a driver fails."""
    error = ffi.new("ist_error *")
    count = ffi.new("int *")
    room = 64
    while True:
        found = ffi.new("ist_device_info[]", room)
        check(lib.ist_devices(found, room, count, error), error)
        if count[0] <= room:
            return [device_of(found[i]) for i in range(count[0])]
        room = count[0]
