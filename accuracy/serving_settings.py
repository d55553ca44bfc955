"""What the client of a benchmark did and how the server was launched, for one row: the rules of ``settings/`` put together.

A value of None leaves the engine's own default, except where it is said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import SpecError
from .serving_rules import Linear, sources

if TYPE_CHECKING:
    from .serving_rules import Columns, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How requests came.

    Parameters
    ----------
    arrivals : ``closed``: so many at a time, the next one sent when one ends; ``poisson``: at a rate
    waves : requests for each of those in flight; None for a rate
    requests : how many were sent at a rate; None for a closed loop
    length_from, length_to : lengths are uniform integers between these shares of the nominal ones
    length_sigma : or they are log-normal with this deviation of the logarithm, around the nominal ones as means
    seed : of the generator (NumPy's RandomState) from which first all inputs and then all outputs are drawn; None: not known
    """

    arrivals: Literal["closed", "poisson"]
    waves: int | None
    requests: int | None
    length_from: float
    length_to: float
    length_sigma: float | None
    seed: int | None

    def mean_length(self, nominal: int) -> int:
        """Mean length of prompts or outputs, in tokens.

        >>> client = ClientSettings(arrivals="closed", waves=10, requests=40, length_from=0.8, length_to=1.0,
        ...                         length_sigma=None, seed=0)
        >>> client.mean_length(1024)
        922
        """
        return max(1, round(nominal * (self.length_from + self.length_to) / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """How the server was started.

    Parameters
    ----------
    engine_version : the version whose profile describes it
    kv : number format of the cache
    batched_tokens : tokens of one step
    max_num_seqs : requests that run at a time
    max_model_len : longest sequence
    memory_utilization : the engine's share of memory, in the engine's own sense
    poll_steps : decode steps after which new requests are fetched
    hold_steps, hold_tokens : prompts are held back for so many steps, or until this share of ``batched_tokens`` waits
    look_ahead : steps that are planned ahead
    """

    engine_version: str
    kv: str
    batched_tokens: int | None
    max_num_seqs: int | None
    max_model_len: int | None
    memory_utilization: float | None
    poll_steps: int
    hold_steps: int
    hold_tokens: float
    look_ahead: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOrigin:
    """Where one setting (``launch.kv``) comes from, and how it was found."""

    key: str
    kind: Kind
    source: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """All settings of one row; ``source`` is the file that they come from."""

    source: str
    client: ClientSettings
    launch: LaunchSettings
    origins: tuple[SettingOrigin, ...]


_CLIENT: dict[str, Any] = {
    "arrivals": None,
    "waves": None,
    "requests": None,
    "length_from": 1.0,
    "length_to": 1.0,
    "length_sigma": None,
    "seed": None,
}
_LAUNCH: dict[str, Any] = {
    "engine_version": None,
    "kv": None,
    "batched_tokens": None,
    "max_num_seqs": None,
    "max_model_len": None,
    "memory_utilization": None,
    "poll_steps": 0,
    "hold_steps": 0,
    "hold_tokens": 1.0,
    "look_ahead": None,
}


def by_defaults(launch: LaunchSettings) -> LaunchSettings:
    """A launch that says nothing but the version and the format of the cache."""
    kept = {"engine_version": launch.engine_version, "kv": launch.kv}
    return LaunchSettings(**{**_LAUNCH, **kept})


def resolve(source: str, row: Columns, recorded: dict[str, str]) -> ServingSettings:
    """The settings of a row from the file of its source; where no rule gives one, what the row records (``kv``, ``engine_version``).

    Raises
    ------
    SpecError : where neither a rule nor the row says how requests came, which version served them, or in which format the cache was
    """
    found = sources()[source].of(row)
    prompt, output, concurrency = (_whole(row[name]) for name in ("isl", "osl", "concurrency"))
    values: dict[str, Any] = {
        key: value.at(prompt or 0, output or 0, concurrency) if isinstance(value, Linear) else value
        for key, (value, _) in found.items()
    }
    client: dict[str, Any] = {name: values.get(f"client.{name}", default) for name, default in _CLIENT.items()}
    launch: dict[str, Any] = {
        name: values.get(f"launch.{name}", recorded.get(name) or default) for name, default in _LAUNCH.items()
    }
    for name, value in (("arrivals", client["arrivals"]), *((key, launch[key]) for key in ("engine_version", "kv"))):
        if value is None:
            raise SpecError(f"settings of {source}", got=f"no {name} for a row", wanted="a rule that gives it")
    origins = (
        SettingOrigin(key=key, kind=rule.kind, source=rule.source, why=rule.why) for key, (_, rule) in found.items()
    )
    return ServingSettings(
        source=source,
        client=ClientSettings(**client),
        launch=LaunchSettings(**launch),
        origins=tuple(origins),
    )


def _whole(value: str | int | None) -> int | None:
    return value if isinstance(value, int) else None
