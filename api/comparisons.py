"""Comparisons by names and options: devices, models, number formats, options with several values, and deployment files."""

from __future__ import annotations

import itertools
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from .. import engines, hardware, models, specfiles
from ..errors import DomainError, RoofplanError, UnknownNameError
from ..hardware.spec import SCHEMA as DEVICE_SCHEMA
from ..hardware.spec import HardwareSpec
from ..models.spec import ModelSpec
from ..planner.comparing import Alternative, CompareResult
from ..planner.comparing import compare as compare_sized
from ..planner.sizing import size_deployment
from ..quantities import NUMBER, parse
from .axes import split_formats
from .building import deployment, loaded
from .deployments import DeploymentFile, deployment_of, is_deployment
from .options import Options, check_names, given

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Named = str | PathLike[str] | ModelSpec | HardwareSpec

MOST_ALTERNATIVES = 16
LISTED = (
    "weights",
    "kv",
    "activations",
    "engine",
    "devices",
    "tp",
    "pp",
    "dp",
    "ep",
    "prompt",
    "output",
    "concurrency",
)  # options that may have several values
_SHOWN_ALONE = ("weights", "engine")  # values that say by themselves what they are


def compare(
    *items: Named,
    model: Named | None = None,
    device: Named | None = None,
    usd_per_hour: float | str | None = None,
    **options: Any,
) -> CompareResult:
    """Size deployments and say in what they differ by more than one per cent.

    Every combination is an alternative of the models, devices and formats that are named, and of options with several values; deployment
    files are alternatives of their own.

    Parameters
    ----------
    items : names of models, devices or number formats, paths of their specs or of deployment files, or specs
    model, device : further ones, which need no looking up in the other catalogue
    usd_per_hour : price of one device, or prices of the devices in their order, separated by commas; default: that of the catalogue
    options : see :class:`~roofplan.api.Options`; those of ``LISTED`` may have several values, as a list or separated by commas

    Raises
    ------
    RoofplanError : for fewer than two alternatives or more than 16, two that are the same, names that nobody or more than one catalogue
        knows, and whatever :func:`~roofplan.api.deployment` refuses

    >>> found = compare("llama-3.1-8b", "h100-sxm", "h200")
    >>> found.labels
    ('h100-sxm5-80gb', 'h200-sxm-141gb')
    """
    check_names(options)
    settings = given(cast("Options", options))
    found = _Found()
    if model is not None:
        found.models.append(loaded(model, ModelSpec, models.load, "--model"))
    if device is not None:
        found.devices.append(loaded(device, HardwareSpec, hardware.load, "--hardware"))
    for item in items:
        found.add(item)
    alternatives = [*_combined(found, settings, usd_per_hour), *_from_files(found.files)]
    if not 2 <= len(alternatives) <= MOST_ALTERNATIVES:
        got = {0: "nothing", 1: "one deployment"}.get(len(alternatives), f"{len(alternatives)} deployments")
        hint = "name more models, devices or formats, or give an option several values" if len(alternatives) < 2 else ""
        raise DomainError("compare", got=got, wanted=f"2 to {MOST_ALTERNATIVES} to compare", hint=hint)
    return compare_sized(_with_own_labels(alternatives))


class _Found:
    """What the items are."""

    def __init__(self) -> None:
        self.models: list[ModelSpec] = []
        self.devices: list[HardwareSpec] = []
        self.formats: list[str] = []
        self.files: list[DeploymentFile] = []

    def add(self, item: Named) -> None:
        """Look an item up."""
        if isinstance(item, ModelSpec):
            self.models.append(item)
        elif isinstance(item, HardwareSpec):
            self.devices.append(item)
        elif isinstance(item, PathLike) or specfiles.looks_like_path(_text(item)):
            self._add_file(fspath(item))
        else:
            self._add_name(_text(item))

    def _add_file(self, path: str) -> None:
        if path.endswith((".yaml", ".yml", ".json")):
            document = specfiles.read_document(path)
            schema = document.data.get("schema") if isinstance(document.data, dict) else None
            if is_deployment(document):
                self.files.append(deployment_of(document))
                return
            if schema == DEVICE_SCHEMA:
                self.devices.append(hardware.from_document(document))
                return
        if path == "-":
            raise DomainError("compare", got="-", wanted="names and paths (--model - reads a model)")
        self.models.append(models.load(path if specfiles.looks_like_path(path) else f"./{path}"))

    def _add_name(self, name: str) -> None:
        known: list[Any] = []
        hints: list[str] = []
        loaders: Sequence[Any] = (models.load, hardware.load, engines.load_format)
        for load in loaders:
            try:
                known.append(load(name))
            except UnknownNameError as error:
                hints += [error.hint] if error.hint.startswith("did you mean") else []
        if len(known) > 1:
            raise DomainError(
                "compare", got=name, wanted="--model or --hardware before a name that both catalogues have"
            )
        if not known:
            hint = " ".join(hints[:1]) or "roofplan model list and roofplan hardware list show them"
            raise UnknownNameError(
                "compare",
                got=name or "an empty name",
                wanted="a model, a device, a number format or a deployment file",
                hint=hint,
            )
        if isinstance(known[0], ModelSpec):
            self.models.append(known[0])
        elif isinstance(known[0], HardwareSpec):
            self.devices.append(known[0])
        else:
            self.formats.append(name)


def _text(item: object) -> str:
    if not isinstance(item, str):
        raise DomainError("compare", got=type(item).__name__, wanted="names, paths or specs")
    return item


def _combined(found: _Found, settings: Options, usd_per_hour: float | str | None) -> list[Alternative]:
    """Every combination of what was named and of options with several values."""
    if found.files and not (found.models or found.devices or found.formats):
        if settings or usd_per_hour is not None:
            name = next(iter(settings), "usd_per_hour").replace("_", "-")
            raise DomainError(
                f"--{name}", got="an option beside deployment files", wanted="it in the files, which are whole"
            )
        return []
    for kind, what in ((found.models, "MODEL"), (found.devices, "HARDWARE")):
        if not kind and (found.models or found.devices or found.formats):
            hint = "name one among the others, or with an option"
            raise DomainError(what, got="nothing", wanted="at least one to compare with", hint=hint)
    if not found.models:
        return []
    values = {name: _values(name, value) for name, value in settings.items()}
    if found.formats:
        if "weights" in values:
            raise DomainError("--weights", got="formats among the names too", wanted="one of them")
        values["weights"] = list(found.formats)
    prices = _prices(usd_per_hour, found.devices)
    _check_different(found)
    varied = [name for name, several in values.items() if len(several) > 1]
    made = []
    for spec, (device, price), chosen in itertools.product(
        found.models, zip(found.devices, prices, strict=True), itertools.product(*values.values())
    ):
        named = dict(zip(values, chosen, strict=True))
        parts = [spec.name] * (len(found.models) > 1) + [device.name] * (len(found.devices) > 1)
        parts += [str(named[name]) if name in _SHOWN_ALONE else f"{name} {named[name]}" for name in varied]
        d = deployment(spec, device, **cast("Options", named))
        own = price if price is not None else device.price.usd_per_hour if device.price else None
        made.append(Alternative(" · ".join(parts) or spec.name, size_deployment(d), own))
        if len(made) > MOST_ALTERNATIVES:
            raise DomainError("compare", got="more combinations", wanted=f"at most {MOST_ALTERNATIVES} deployments")
    return made


def _values(name: str, value: object) -> list[Any]:
    """The values of an option: several of those that may have them."""
    if name not in LISTED:
        return [value]
    if isinstance(value, (list, tuple)):
        values: list[Any] = list(value)
    elif isinstance(value, str) and name == "weights":
        values = split_formats(value)
    elif isinstance(value, str) and "," in value:
        values = [item.strip() for item in value.split(",")]
    else:
        values = [value]
    if not values or len({str(item) for item in values}) < len(values):
        got = "no value" if not values else f"{value}"
        raise DomainError(f"--{name}", got=got, wanted="values that differ")
    return values


def _prices(usd_per_hour: float | str | None, devices: Sequence[HardwareSpec]) -> list[float | None]:
    if usd_per_hour is None:
        return [None] * len(devices)
    texts: Iterable[object] = usd_per_hour.split(",") if isinstance(usd_per_hour, str) else [usd_per_hour]
    prices: list[float | None] = [
        float(parse(text.strip() if isinstance(text, str) else text, NUMBER, "--usd-per-hour")) for text in texts
    ]
    if len(prices) not in {1, len(devices)}:
        wanted = f"one, or one for each of the {len(devices)} devices in their order"
        raise DomainError("--usd-per-hour", got=f"{len(prices)} prices", wanted=wanted)
    return prices if len(prices) == len(devices) else prices * len(devices)


def _check_different(found: _Found) -> None:
    for names in ([spec.name for spec in found.models], [spec.name for spec in found.devices], found.formats):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise DomainError("compare", got=f"{name} twice", wanted="each once")


def _from_files(files: Sequence[DeploymentFile]) -> list[Alternative]:
    made = []
    for file in files:
        device = file.deployment.hardware
        price = (
            file.usd_per_hour if file.usd_per_hour is not None else device.price.usd_per_hour if device.price else None
        )
        made.append(Alternative(file.name, size_deployment(file.deployment), price))
    return made


def _with_own_labels(alternatives: Sequence[Alternative]) -> list[Alternative]:
    """Labels that differ: those that come again get a number."""
    seen: dict[str, int] = {}
    labelled = []
    for one in alternatives:
        seen[one.label] = seen.get(one.label, 0) + 1
        label = one.label if seen[one.label] == 1 else f"{one.label} ({seen[one.label]})"
        labelled.append(Alternative(label, one.result, one.usd_per_hour))
    return labelled


__all__ = ["CompareResult", "RoofplanError", "compare"]
