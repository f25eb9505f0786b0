"""The machine file: every size and every timing of the emulated wafer, read from TOML and checked key by key.

Nothing about a machine is hard-coded anywhere else. docs/machine.md says what each key means.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ..isa.errors import Rejected
from ..isa.instructions import INSTRUCTIONS, Unit, rate_key, setup_key
from ..isa.program import COLOURS, QUEUES

PRESETS = ("tiny", "wse2", "wse3")


class MachineError(Rejected):
    """A machine file that cannot be used: names the file, the key, the rule and the next step."""

    def __init__(self, where: str, text: str, help: str | None = None) -> None:
        super().__init__(f"{where}: error[format]: {text}", category="format", help=help)


@dataclass(frozen=True)
class Grid:
    width: int
    height: int


@dataclass(frozen=True)
class Sram:
    """`[sram]`: bytes per PE, banks and their width in bytes."""

    bytes: int
    banks: int
    bank_bytes: int

    @property
    def bytes_per_cycle(self) -> int:
        return self.banks * self.bank_bytes


@dataclass(frozen=True)
class Fabric:
    hop: int
    buffer_depth: int
    ramp_up: int
    ramp_down: int
    livelock_cycles: int
    reserved_colours: tuple[int, ...]


@dataclass(frozen=True)
class Queues:
    in_depth: tuple[int, ...]
    out_depth: tuple[int, ...]


@dataclass(frozen=True)
class Engine:
    fp_latency: int
    writeback: int
    branch_not_taken: int
    branch_taken: int
    accumulators: int


@dataclass(frozen=True)
class MachineSpec:
    """One machine. Cycles unless a unit is named; `rate` in elements per cycle."""

    name: str
    clock_mhz: float
    grid: Grid
    sram: Sram
    fabric: Fabric
    queues: Queues
    engine: Engine
    setup: dict[str, int]
    rate: dict[str, float]
    special: dict[str, int]

    def lead(self, setup: str) -> int:
        """Cycles from dispatch to the first group: published set-ups count up to the last execution."""
        return self.setup[setup] - (self.engine.writeback - 1)

    def __hash__(self) -> int:
        return hash((self.name, self.grid, self.sram, self.fabric, self.queues, self.engine))


def _vector_keys() -> tuple[set[str], set[str]]:
    """The `[setup]` and `[rate]` keys that the instruction table asks for."""
    setups: set[str] = set()
    rates: set[str] = set()
    for row in INSTRUCTIONS:
        if row.unit is Unit.VECTOR:
            for t, s in row.types:
                rates.add(rate_key(row, t, s))
                setups.update(
                    setup_key(row, t, s, scalar)
                    for scalar in ({True, False} if "scalar" in row.fields else {False})
                )
    return setups, rates


SETUP_KEYS, RATE_KEYS = _vector_keys()
SPECIAL_KEYS = {row.latency for row in INSTRUCTIONS if row.unit is Unit.SCALAR} - {
    "none",
    "integer",
    "load",
    "floating",
    "branch",
    "jump",
}


def machine(name_or_path: str | Path) -> MachineSpec:
    """A preset (`tiny`, `wse2`, `wse3`) or a user's own TOML file.

    Raises MachineError naming file and key for anything missing, unknown or out of range.
    """
    if str(name_or_path) in PRESETS:
        text = resources.files(__package__).joinpath(f"machines/{name_or_path}.toml").read_text("utf-8")
        return parse_machine(text, f"{name_or_path}.toml")
    path = Path(name_or_path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise MachineError(
            str(path),
            f"cannot read the machine file: {reason}",
            help=f"presets are {', '.join(PRESETS)}; anything else is the path of a TOML file",
        ) from None
    return parse_machine(text, str(path))


def parse_machine(text: str, where: str) -> MachineSpec:
    """Read and check one machine file. `where` names it in messages."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(where, f"not TOML: {error}") from None
    reader = _Reader(where, tree)
    spec = MachineSpec(
        name=reader.text("name"),
        clock_mhz=reader.number("clock_mhz", above=0),
        grid=Grid(**reader.integers("grid", Grid, minimum=1)),
        sram=Sram(**reader.integers("sram", Sram, minimum=1)),
        fabric=Fabric(
            **reader.integers("fabric", Fabric, minimum=1, lists=("reserved_colours",)),
            reserved_colours=reader.list("fabric", "reserved_colours", 0, COLOURS - 1, 0, COLOURS),
        ),
        queues=Queues(
            in_depth=reader.list("queues", "in_depth", 1, 1 << 15, 1, QUEUES),
            out_depth=reader.list("queues", "out_depth", 1, 1 << 15, 1, QUEUES),
        ),
        engine=Engine(**reader.integers("engine", Engine, minimum=1, zero=("accumulators",))),
        setup={key: int(v) for key, v in reader.table("setup", SETUP_KEYS, whole=True).items()},
        rate=reader.table("rate", RATE_KEYS, whole=False),
        special={key: int(v) for key, v in reader.table("special", SPECIAL_KEYS, whole=True).items()},
    )
    reader.finish()
    _check(spec, where)
    return spec


def _check(spec: MachineSpec, where: str) -> None:
    """Rules between keys."""
    if spec.fabric.buffer_depth < 2:
        raise MachineError(where, f"`fabric.buffer_depth` is {spec.fabric.buffer_depth}: at least 2 wavelets")
    for key in ("in_depth", "out_depth"):
        for depth in getattr(spec.queues, key):
            if depth < 2:
                raise MachineError(where, f"`queues.{key}` holds {depth}: every depth is at least 2 wavelets")
    if spec.sram.bytes > 1 << 16 or spec.sram.bytes % 4:
        raise MachineError(
            where, f"`sram.bytes` is {spec.sram.bytes}: a multiple of 4 up to 65,536 (16-bit addresses)"
        )
    if spec.sram.banks & (spec.sram.banks - 1) or spec.sram.bank_bytes != 4:
        raise MachineError(where, "`sram.banks` is a power of two and `sram.bank_bytes` is 4")
    if spec.sram.banks > 64:
        raise MachineError(where, f"`sram.banks` is {spec.sram.banks}: at most 64")
    longest = max([*spec.setup.values(), *spec.special.values(), spec.engine.branch_taken, spec.fabric.hop])
    if spec.fabric.livelock_cycles <= longest:
        raise MachineError(
            where,
            f"`fabric.livelock_cycles` is {spec.fabric.livelock_cycles}: more than any latency ({longest})",
        )
    for key in spec.setup:
        if spec.lead(key) < 1:
            raise MachineError(
                where,
                f"`setup.{key}` is {spec.setup[key]}: at least `engine.writeback` = {spec.engine.writeback}",
            )
    for key, rate in spec.rate.items():
        if rate > 64:
            raise MachineError(where, f"`rate.{key}` is {rate}: at most 64 elements per cycle")
        whole = rate if rate >= 1 else 1 / rate
        if abs(whole - round(whole)) > 1e-9:
            raise MachineError(
                where,
                f"`rate.{key}` is {rate}: a whole number of elements per cycle, or one over a whole number",
            )


class _Reader:
    """Takes keys out of a parsed TOML tree; whatever is left at the end is unknown."""

    def __init__(self, where: str, tree: dict[str, Any]) -> None:
        self.where = where
        self.tree = tree
        self.used: set[str] = set()

    def _get(self, key: str) -> Any:
        self.used.add(key)
        node: Any = self.tree
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                raise MachineError(
                    self.where, f"key `{key}` is missing", help="see fabric/machines/wse3.toml for every key"
                )
            node = node[part]
        return node

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise MachineError(self.where, f"`{key}` is {value!r}: a string is wanted")
        return value

    def number(self, key: str, above: float) -> float:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < 1e12:
            raise MachineError(self.where, f"`{key}` is {value!r}: a number above {above} is wanted")
        return value

    def integer(self, key: str, minimum: int, maximum: int = 1 << 31) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise MachineError(
                self.where, f"`{key}` is {value!r}: a whole number in {minimum}..{maximum} is wanted"
            )
        return value

    def integers(
        self, table: str, into: type, minimum: int, lists: tuple[str, ...] = (), zero: tuple[str, ...] = ()
    ) -> dict:
        names = [f.name for f in dataclasses.fields(into) if f.name not in lists]
        return {n: self.integer(f"{table}.{n}", 0 if n in zero else minimum) for n in names}

    def list(
        self, table: str, name: str, low: int, high: int, shortest: int, longest: int
    ) -> tuple[int, ...]:
        key = f"{table}.{name}"
        value = self._get(key)
        fine = (
            isinstance(value, list)
            and shortest <= len(value) <= longest
            and all(isinstance(v, int) and not isinstance(v, bool) and low <= v <= high for v in value)
        )
        if not fine:
            raise MachineError(
                self.where,
                f"`{key}` is {value!r}: a list of {shortest} to {longest} whole numbers in {low}..{high} is "
                "wanted",
            )
        return tuple(value)

    def table(self, table: str, keys: set[str], whole: bool) -> dict[str, float]:
        read = (
            (lambda k: float(self.integer(k, 1, 1 << 20))) if whole else (lambda k: float(self.number(k, 0)))
        )
        return {key: read(f"{table}.{key}") for key in sorted(keys)}

    def finish(self) -> None:
        for name, node in self.tree.items():
            for key in [f"{name}.{inner}" for inner in node] if isinstance(node, dict) else [name]:
                if key not in self.used:
                    raise MachineError(
                        self.where,
                        f"unknown key `{key}`",
                        help="remove it, or check its spelling against fabric/machines/wse3.toml",
                    )
