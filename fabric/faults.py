"""The report of a fault: what the PE did, where, in which cycle and instruction, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..isa.diagnostics import excerpt
from ..isa.instructions import IllegalInstruction, decode
from ..isa.program import Kernel, Location, Program, Symbol
from ..isa.spelling import spell
from .outcome import FaultCode, FaultRecord, Outcome
from .spec import MachineSpec

__all__ = ["FAULTS", "FaultReport", "FaultText"]


class FaultText(NamedTuple):
    """What a code means. `{a}`: the record's argument, `{bytes}`: the PE's data, `{near}`: a symbol."""

    name: str
    what: str
    help: str


FAULTS: dict[FaultCode, FaultText] = {
    FaultCode.ILLEGAL: FaultText(
        "illegal",
        "no such instruction: {why}",
        "execution ran into data, or the code was changed after assembly; see `waferloom isa`",
    ),
    FaultCode.PC: FaultText(
        "pc",
        "execution left the code: word address {a}, the code has words 0..{last_word}",
        "end the task with `end`, or check the jump before it",
    ),
    FaultCode.BOUNDS: FaultText(
        "bounds",
        "access at byte address {a} ({hex}), outside the {bytes:,} bytes of data{near}",
        "compare the extents and strides of the operand with the symbol's shape",
    ),
    FaultCode.ALIGNMENT: FaultText(
        "alignment",
        "odd byte address {a} ({hex}){near}",
        "every element starts on a multiple of 2 bytes",
    ),
    FaultCode.UNINITIALISED: FaultText(
        "uninitialised",
        "read of never-written SRAM at byte address {a} ({hex}){near}",
        "write it before, or run without --strict: then it reads as zero",
    ),
    FaultCode.EXTENT: FaultText(
        "extent",
        "the operands differ in length: a source has {a} elements",
        "give all operands of one vector instruction the same number of elements",
    ),
    FaultCode.DESCRIPTOR: FaultText(
        "descriptor",
        "descriptor d{a} is of a kind, packing or shape this instruction cannot use",
        "see the instruction in `waferloom isa`; all fabric operands of one instruction pack alike",
    ),
    FaultCode.THREAD_BUSY: FaultText(
        "thread_busy",
        "microthread {a} is still busy",
        "launch on another microthread, or wait for the completion of the first operation",
    ),
    FaultCode.QUEUE_BUSY: FaultText(
        "queue_busy",
        "queue {a} is used by another operation of this PE",
        "let the first operation complete, or bind a second queue",
    ),
    FaultCode.QUEUE_UNBOUND: FaultText(
        "queue_unbound", "queue {a} has no colour bound to it", "bind it where the kernel is placed"
    ),
    FaultCode.NO_TASK: FaultText(
        "no_task", "this PE has no local task {a}; it has {tasks}", "declare the task, or correct the name"
    ),
    FaultCode.NO_CONTROL_TASK: FaultText(
        "no_control_task",
        "a control wavelet names task {a}, which is no control task here; control tasks: {controls}",
        "declare it as a control task on every PE that the wavelet reaches",
    ),
    FaultCode.BAD_COMMAND: FaultText(
        "bad_command",
        "a control wavelet with payload {hex} carries switch command 3",
        "commands are 0 none, 1 advance, 2 reset",
    ),
    FaultCode.TRAP: FaultText("trap", "trap or failed assert, code {a}", "the program stopped itself here"),
}


@dataclass
class FaultReport:
    """What `text` prints and `to_json` gives; made by `of`."""

    record: FaultRecord
    name: str
    what: str
    help: str
    kernel: str | None
    word: int | None
    instruction: str | None
    location: Location | None
    recent: list[tuple[int, str, Location | None]]  # word address, instruction, place; oldest first
    source: list[str]

    @staticmethod
    def of(spec: MachineSpec, program: Program, outcome: Outcome) -> FaultReport:
        """The report of an outcome that ended by a fault."""
        record = outcome.fault
        assert record is not None
        row = FAULTS[record.code]
        kernel = program.kernel_at(record.x, record.y)
        inside = kernel is not None and 0 <= record.pc < len(kernel.code)
        place = _place(kernel, record.pc)
        recent = (
            [(pc, spelled(kernel, pc), _place(kernel, pc)) for pc in record.recent[-8:]] if kernel else []
        )
        if place is None and recent:
            place = recent[-1][2]  # execution left the code: the last instruction is where it happened
        return FaultReport(
            record,
            row.name,
            row.what.format(**_facts(record, kernel)),
            row.help,
            kernel.name if kernel else None,
            int(kernel.code[record.pc]) if inside and kernel else None,
            spelled(kernel, record.pc) if inside else None,
            place,
            recent,
            excerpt(place, program.sources),
        )

    def text(self) -> str:
        """The report for people, without a final newline."""
        record = self.record
        where = f"PE ({record.x},{record.y})" + (f", kernel {self.kernel}" if self.kernel else ", its router")
        prefix = f"{self.location}: " if self.location else ""
        lines = [f"{prefix}error[fault]: {self.name}: {self.what}", *self.source]
        at = f"note: {where}, cycle {record.cycle:,}"
        if self.word is not None:
            at += f", pc {record.pc}, word {self.word:#010x}: {self.instruction}"
        elif record.pc >= 0:
            at += f", pc {record.pc}"
        lines.append(at)
        if self.recent:
            lines.append(f"note: the last {len(self.recent)} instructions of this PE, oldest first")
            width = max(len(text) for _, text, _ in self.recent)
            lines += [
                f"  {pc:5d}  {text.ljust(width)}  {place or ''}".rstrip() for pc, text, place in self.recent
            ]
        return "\n".join([*lines, f"help: {self.help}"])

    def to_json(self) -> dict[str, Any]:
        """The same as a document."""
        record, place = self.record, self.location
        return {
            "kind": "fault",
            "fault": self.name,
            "what": self.what,
            "help": self.help,
            "pe": [record.x, record.y],
            "kernel": self.kernel,
            "cycle": int(record.cycle),
            "pc_words": int(record.pc) if record.pc >= 0 else None,
            "word": f"{self.word:#010x}" if self.word is not None else None,
            "instruction": self.instruction,
            "argument": int(record.argument),
            "location": {"file": place.file, "line": place.line, "column": place.column} if place else None,
            "recent": [
                {"pc_words": int(pc), "instruction": text, "location": str(at) if at else None}
                for pc, text, at in self.recent
            ],
        }


def spelled(kernel: Kernel | None, pc: int) -> str:
    """The instruction at a word address, disassembled; why not, if it is none."""
    if kernel is None or not 0 <= pc < len(kernel.code):
        return "(outside the code)"
    code = kernel.code.tolist()
    try:
        found = decode(code, pc)
    except IllegalInstruction as error:
        return f"(illegal: {error})"
    return spell(found, pc)


def _place(kernel: Kernel | None, pc: int) -> Location | None:
    if kernel is None or not 0 <= pc < len(kernel.locations):
        return None
    return kernel.locations[pc]


def _facts(record: FaultRecord, kernel: Kernel | None) -> dict[str, Any]:
    size = len(kernel.data) if kernel else 0
    tasks = sorted(kernel.tasks.values(), key=lambda t: t.id) if kernel else []
    why = ""
    if record.code is FaultCode.ILLEGAL and kernel is not None:
        try:
            decode(kernel.code.tolist(), record.pc)
        except IllegalInstruction as error:
            why = str(error)
    return {
        "a": record.argument,
        "hex": f"{record.argument & 0xFFFFFFFF:#x}",
        "bytes": size,
        "near": _near(kernel, record.argument),
        "last_word": len(kernel.code) - 1 if kernel else -1,
        "why": why or f"word {record.argument & 0xFFFFFFFF:#010x}",
        "tasks": _names(t for t in tasks if t.kind.name == "LOCAL"),
        "controls": _names(t for t in tasks if t.kind.name == "CONTROL"),
    }


def _names(tasks: Any) -> str:
    return ", ".join(f"{task.id} ({task.name})" for task in tasks) or "none"


def _near(kernel: Kernel | None, address: int) -> str:
    """` in `acc`, byte 12 of 16`, or which symbol ends just before."""
    if kernel is None:
        return ""
    before: Symbol | None = None
    for symbol in sorted(kernel.symbols.values(), key=lambda s: s.address):
        if symbol.address <= address < symbol.address + symbol.nbytes:
            return f", in `{symbol.name}`, byte {address - symbol.address} of its {symbol.nbytes:,}"
        if symbol.role == "data" and symbol.nbytes and symbol.address + symbol.nbytes <= address:
            before = symbol
    if before is None:
        return ""
    behind = address - before.address - before.nbytes
    return f", {f'{behind:,} bytes' if behind else 'right'} behind the end of `{before.name}`"
