"""What a run gives back: outputs, cycles and where they went, the report of a bad end, the result file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..isa import errors
from ..isa.image import program_digest
from ..isa.program import Program
from .outcome import Cycle, LaneOutput, Outcome
from .spec import MachineSpec
from .wavelets import unpack

__all__ = ["SCHEMA", "Counters", "Result", "RunSettings", "machine_digest"]

SCHEMA = 1  # of the result file; goes up when a key changes its meaning


@dataclass(frozen=True)
class RunSettings:
    """How a run was asked for. `seconds` says something about the host only."""

    engine: str
    strict: bool = False
    max_cycles: int | None = None
    seconds: float = 0.0


class Counters:
    """Cycles of every PE by what they were spent on: `counters["receive"]` is (H, W) int64."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # (H, W, len(Cycle)) int64

    def __getitem__(self, reason: str) -> np.ndarray:
        try:
            return self.array[..., Cycle[reason.upper()]]
        except KeyError:
            raise errors.Usage(
                f"no counter {reason!r}; legal: {', '.join(self.names)}", category="name"
            ) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The reasons, in the order of the array's last axis."""
        return tuple(reason.name.lower() for reason in Cycle)

    @property
    def totals(self) -> dict[str, int]:
        """PE-cycles of the whole grid per reason."""
        sums = self.array.sum(axis=(0, 1))
        return {reason.name.lower(): int(sums[reason]) for reason in Cycle}


class Result:
    """One run of a wafer. `result["y"]` is output edge port `y`: array (lanes, *shape) of its type."""

    def __init__(
        self,
        spec: MachineSpec,
        program: Program,
        outcome: Outcome,
        settings: RunSettings,
        sram: np.ndarray | None = None,
    ) -> None:
        self.spec = spec
        self.program = program
        self.outcome = outcome
        self.settings = settings
        self.end = outcome.end  # finished, hang, limit, fault, interrupted
        self.cycles = outcome.cycles
        self.counters = Counters(outcome.counters)
        self.link_words = (
            outcome.link_words
        )  # (H, W, 5) int64: wavelets that left each router by N, E, S, W, RAMP
        self.checks: list[dict[str, Any]] = []  # comparisons made with this result, for the result file
        # Made now: a later run of the wafer changes the memory that the report looks at.
        self.report: Any = None if self.end == "finished" else self._report(sram)

    @property
    def checks_hold(self) -> bool:
        """Whether every comparison made with this result held."""
        return all(check["ok"] for check in self.checks)

    # --- outputs ---

    @property
    def lanes(self) -> dict[str, list[LaneOutput]]:
        """What arrived at each output edge port, lane by lane: payload, control bit and cycle."""
        return self.outcome.outputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output edge ports."""
        return tuple(name for name, port in self.program.edge_ports.items() if port.output)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.outputs:
            raise errors.Usage(
                f"the program has no output `{name}`",
                category="name",
                help=f"its outputs: {', '.join(self.outputs) or 'none'}; `wafer.read` reads a symbol",
            )
        return unpack(self.program.edge_ports[name], self.outcome.outputs[name])

    # --- time ---

    @property
    def microseconds(self) -> float:
        """The run's length at the machine's clock."""
        return self.cycles / self.spec.clock_mhz

    @property
    def placed(self) -> np.ndarray:
        """(H, W) bool: PEs that have a kernel."""
        return np.asarray(self.program.placement) >= 0

    # --- how it ended ---

    def _report(self, sram: np.ndarray | None) -> Any:
        """The report of a bad end: an object with `text()` and `to_json()`."""
        if self.end == "fault":
            from .faults import FaultReport

            return FaultReport.of(self.spec, self.program, self.outcome)
        from .hang import HangReport

        return HangReport.of(self.spec, self.program, self.outcome, sram)

    def error(self) -> errors.WaferloomError | None:
        """The exception that belongs to the end, with the report as its text; None if the run finished."""
        if self.end == "finished":
            return None
        kinds = {
            "hang": errors.Hang,
            "limit": errors.Limit,
            "fault": errors.Fault,
            "interrupted": errors.Interrupted,
        }
        return kinds[self.end](self.report.text())

    def raise_for_end(self) -> None:
        """Raise Hang, Limit, Fault or Interrupted unless the run finished."""
        error = self.error()
        if error is not None:
            raise error

    # --- result file ---

    def to_json(self, *, host: bool = True) -> dict[str, Any]:
        """The result file: units in key names, everything that depends on the host under `host`."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "end": "mismatch" if self.end == "finished" and not self.checks_hold else self.end,
            "program": {
                "name": self.program.name,
                "digest": program_digest(self.program),
                "parameters": dict(sorted(self.program.parameters.items())),
                "width_pes": self.program.width,
                "height_pes": self.program.height,
            },
            "config": {
                "machine": self.spec.name,
                "machine_digest": machine_digest(self.spec),
                "clock_mhz": self.spec.clock_mhz,
                "engine": self.settings.engine,
                "strict": self.settings.strict,
                "max_cycles": self.settings.max_cycles,
            },
            "sim": {
                "cycles": int(self.cycles),
                "placed_pes": int(self.placed.sum()),
                "pe_cycles": self.counters.totals,
                "instructions": int(self.outcome.instructions.sum()),
                "link_words": {
                    port: int(n) for port, n in zip("NESW", self.link_words.sum(axis=(0, 1)), strict=False)
                },
                "ramp_words": int(self.link_words[..., 4].sum()),
                "unread_input_words": {
                    k: [int(n) for n in v] for k, v in sorted(self.outcome.unread_inputs.items())
                },
            },
            "outputs": {name: self._output_json(name) for name in sorted(self.outputs)},
            "checks": self.checks,
        }
        if self.report is not None:
            document["report"] = self.report.to_json()
        if host:
            document["host"] = {"run_s": round(self.settings.seconds, 6)}
        return document

    def dumps(self, *, host: bool = True) -> str:
        """The result file's text."""
        return json.dumps(self.to_json(host=host), sort_keys=True, indent=1, ensure_ascii=False)

    def _output_json(self, name: str) -> dict[str, Any]:
        port, lanes = self.program.edge_ports[name], self.outcome.outputs[name]
        digest = hashlib.sha256()
        for lane in lanes:
            digest.update(np.asarray(lane.payload, "<u4").tobytes())
        return {
            "element": port.element.source_name,
            "shape": [len(port.lanes), *port.shape],
            "lane_words": [len(lane.payload) for lane in lanes],
            "last_arrival_cycles": [int(lane.cycle[-1]) if len(lane.cycle) else None for lane in lanes],
            "payload_sha256": digest.hexdigest(),
        }


def machine_digest(spec: MachineSpec) -> str:
    """sha256 of every size and timing of a machine."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(spec), sort_keys=True).encode()).hexdigest()
