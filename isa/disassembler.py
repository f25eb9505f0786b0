"""Words of code as text: what each instruction is, for people and for the assembler.

A word that is no instruction is written as `.word` with the reason behind it; so is an instruction that the
source cannot say (a label begins at its second word, it names no task). source_writer.py writes programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .instructions import Decoded, IllegalInstruction, decode
from .program import Kernel, Symbol
from .spelling import Names, Unspeakable, spell

__all__ = ["CodeLine", "code_lines", "disassemble_kernel", "disassemble_words", "place_in_data"]


@dataclass(frozen=True)
class CodeLine:
    """One instruction or data word: its address, its word or words, its text, and perhaps a remark."""

    pc: int
    words: tuple[int, ...]
    text: str
    remark: str = ""
    decoded: Decoded | None = None


def code_lines(
    code: np.ndarray | Sequence[int], names: Names, starts: frozenset[int] = frozenset()
) -> Iterator[CodeLine]:
    """Every instruction of `code` in order. `starts`: words where something begins (labels, tasks)."""
    words = [int(word) for word in code]
    pc = 0
    while pc < len(words):
        try:
            decoded: Decoded | None = decode(words, pc)
            remark = ""
        except IllegalInstruction as error:
            decoded, remark = None, f"illegal: {error}"
        if decoded is not None and decoded.words == 2 and pc + 1 in starts:
            decoded, remark = None, "an instruction whose second word has a label"
        if decoded is not None:
            try:
                text = spell(decoded, pc, names)
            except Unspeakable as error:
                remark, decoded = f"{spell(decoded, pc)}: {error}", None
        if decoded is None:
            yield CodeLine(pc, (words[pc],), f".word {words[pc]:#010x}", remark)
            pc += 1
        else:
            yield CodeLine(pc, tuple(words[pc : pc + decoded.words]), text, "", decoded)
            pc += decoded.words


def _target(decoded: Decoded, pc: int) -> int | None:
    """The word that a branch or jump leads to."""
    for name in ("offset", "jump"):
        if name in decoded.values:
            return pc + decoded.values[name]
    return None


def place_in_data(address: int, symbols: Mapping[str, Symbol]) -> str | None:
    """`symbol` or `symbol+offset` for a byte address; the innermost symbol that holds it."""
    holding = [s for s in symbols.values() if s.address <= address < s.address + max(1, s.nbytes)]
    if not holding:
        return None
    best = min(holding, key=lambda s: (address - s.address, s.nbytes, s.name))
    return best.name if best.address == address else f"{best.name}+{address - best.address}"


def disassemble_words(
    code: np.ndarray | Sequence[int],
    labels: Mapping[str, int] | None = None,
    symbols: Mapping[str, Symbol] | None = None,
    tasks: Mapping[int, str] | None = None,
) -> list[str]:
    """Lines `addr: words  instruction   ; remark`; the remark names data, jump targets and tasks.

    `labels`: name -> word address; `symbols`: those of the kernel's data; `tasks`: id -> name.
    """
    labels, symbols, tasks = labels or {}, symbols or {}, tasks or {}
    at: dict[int, list[str]] = {}
    for name, pc in labels.items():
        at.setdefault(pc, []).append(name)
    lines = []
    for line in code_lines(code, Names(), frozenset(at)):
        for name in at.get(line.pc, []):
            lines.append(f"{name}:")
        remark = line.remark or "; ".join(_remarks(line, at, symbols, tasks))
        words = " ".join(f"{word:08x}" for word in line.words)
        text = f"{line.pc:04x}: {words:17}  {line.text}"
        lines.append(f"{text:60} ; {remark}" if remark else text)
    for name in at.get(len(code), []):
        lines.append(f"{name}:")
    return lines


def _remarks(
    line: CodeLine, at: Mapping[int, list[str]], symbols: Mapping[str, Symbol], tasks: Mapping[int, str]
) -> Iterator[str]:
    if line.decoded is None:
        return
    values = line.decoded.values
    target = _target(line.decoded, line.pc)
    if target is not None:
        yield f"to {at[target][0]}" if target in at else f"to {target:04x}"
    if "address" in values and (place := place_in_data(values["address"], symbols)):
        yield place
    for key in ("task", "launch_task"):
        if key in values and values[key] in tasks and (key == "task" or values["completion"]):
            yield f"task {tasks[values[key]]}"


def disassemble_kernel(kernel: Kernel) -> list[str]:
    """The lines of a kernel's code, with its own names."""
    tasks = {number: task.name for number, task in kernel.tasks.items()}
    return disassemble_words(kernel.code, kernel.labels, kernel.symbols, tasks)
