"""What ``roofplan measure`` answers: a run, the gates of its ceilings, and the device that was made from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..planner.results import Answer, Notice
from .gates import warnings_of

if TYPE_CHECKING:
    from .gates import Gate
    from .records import Record, Run


@dataclass(frozen=True, slots=True)
class MeasureResult(Answer):
    """A run beside what was predicted.

    Parameters
    ----------
    run : what was measured
    gates : of its ceilings: fitted, measured and nominal rates
    device : the hardware YAML that was made of them, or None where the run has no ceilings
    datasheet : the catalogue's device, or empty
    samples : whether every sample is told
    saved : where the device was written, or empty
    """

    run: Run
    gates: tuple[Gate, ...] = ()
    device: dict[str, Any] | None = None
    datasheet: str = ""
    samples: bool = False
    saved: str = ""

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "measure"

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Rates that pass a gate, what disturbed the machine, and what was left out."""
        found = list(warnings_of(self.gates, self.run.environment))
        found += [Notice("environment", note) for note in self.run.environment.notes]
        found += [Notice("left_out", note) for note in self.run.notes]
        unmet = [record for record in self.run.records if record.measured.unmet]
        if unmet:
            text = f"{len(unmet)} of {len(self.run.records)} measurements ended before they were steady"
            found.append(Notice("not_steady", f"{text}, as {unmet[0].name}: {unmet[0].measured.unmet}"))
        dropped = sum(record.measured.dropped for record in self.run.records)
        if dropped:
            found.append(Notice("throttled", f"{dropped} samples were dropped: the machine was throttled"))
        return tuple(found)

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {"what": self.run.command, "quick": self.run.quick, "device": self.run.environment.torch_device}

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "records": [self._record(record) for record in self.run.records],
            "environment": self.run.environment.to_dict(),
            "started": self.run.started,
            "gates": [
                {
                    "name": gate.name,
                    "unit": gate.unit,
                    "fitted": gate.fitted,
                    "measured": gate.measured,
                    "peak": gate.peak,
                    "holds": gate.holds,
                }
                for gate in self.gates
            ],
            "datasheet": self.datasheet or None,
            "saved": self.saved or None,
        }

    def _record(self, record: Record) -> dict[str, Any]:
        """A record with the keys of DESIGN: measured, predicted, unit, spread; all else beside them."""
        measured = record.measured
        said = {
            "name": record.name,
            "unit": record.unit,
            "parameters": record.parameters,
            "measured": measured.median,
            "predicted": record.predicted,
            "predicted_datasheet": record.predicted_datasheet,
            "predicted_measured": record.predicted_measured,
            "ratio": record.ratio,
            "spread": {
                "q1": measured.q1,
                "q3": measured.q3,
                "relative_mad": measured.relative_mad,
                "count": measured.count,
                "dropped": measured.dropped,
                "warnings": list(measured.warnings),
                "unmet": measured.unmet,
            },
        }
        return said | ({"samples": list(measured.samples)} if self.samples else {})

    def table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Columns and rows, one a record."""
        columns = ["name", "parameters", "unit", "measured", "q1", "q3", "count"]
        columns += ["predicted_datasheet", "predicted_measured", "ratio"]
        rows = [
            {
                "name": record.name,
                "parameters": json.dumps(record.parameters, sort_keys=True),
                "unit": record.unit,
                "measured": record.measured.median,
                "q1": record.measured.q1,
                "q3": record.measured.q3,
                "count": record.measured.count,
                "predicted_datasheet": record.predicted_datasheet,
                "predicted_measured": record.predicted_measured,
                "ratio": record.ratio,
            }
            for record in self.run.records
        ]
        return columns, rows
