"""The devices that predictions beside a measurement are made for: the data sheet's, and the measured one (see :mod:`.overlay`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import hardware
from ..api.building import loaded
from ..errors import UnknownNameError
from ..hardware.spec import HardwareSpec

if TYPE_CHECKING:
    from os import PathLike

_SUFFIX = "-measured"


@dataclass(frozen=True, slots=True)
class Devices:
    """A device as its data sheet says, and as it was measured; None where it is not known."""

    datasheet: HardwareSpec | None = None
    measured: HardwareSpec | None = None

    @property
    def names(self) -> str:
        """In words."""
        known = [device.name for device in (self.datasheet, self.measured) if device is not None]
        return " and ".join(known) or "no device"


def is_measured(device: HardwareSpec) -> bool:
    """Whether a device is an overlay: what its kernels reach was measured on it."""
    on = (device.achieved.kernels or {}).get("measured_on", ())
    return isinstance(on, list | tuple) and device.name in on


def devices_of(asked: str | PathLike[str] | HardwareSpec | None, driver_name: str | None = None) -> Devices:
    """The devices of a name, a path or a spec; without one, the catalogue's that a driver calls so.

    Raises
    ------
    RoofplanError : for a name that is asked for and not known, or a malformed file
    """
    if asked is None:
        return Devices(None if driver_name is None else _listed(driver_name))
    device = loaded(asked, HardwareSpec, hardware.load, "--hardware")
    if is_measured(device):
        return Devices(_listed(device.name.removesuffix(_SUFFIX)), device)
    return Devices(device)


def _listed(name: str) -> HardwareSpec | None:
    try:
        return hardware.load(name)
    except UnknownNameError:
        return None
