"""How an instruction is written: its template for people, its text for the assembler. Derived from the table.

The disassembler, the listing and the instruction tables spell instructions here and nowhere else; the
assembler accepts every text that `spell` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .fields import FIELDS, LAUNCH_FIELDS
from .instructions import Decoded, Instruction

# Operands in source order where it differs from the table's field order: the destination comes first.
_SOURCE_ORDER = {"recv": ("ra", "queue")}
# Fields that are no operand between commas: written behind the operands, or changing how an operand looks.
_ELSEWHERE = ("group", "asynchronous", "scalar", "advance_d", "advance_a", "advance_b", "source", "type")


def operand_fields(row: Instruction) -> tuple[str, ...]:
    """The fields that stand between commas in source, in that order."""
    return _SOURCE_ORDER.get(row.name) or tuple(name for name in row.fields if name not in _ELSEWHERE)


def template(row: Instruction) -> str:
    """The instruction with placeholders: `vmac.T.S dd, da, db | rb`; S is the source's type if it differs."""
    types = "" if not row.types else ".T.S" if row.has_source_type else ".T"
    fields = list(operand_fields(row))
    texts: list[str] = []
    for name in fields:
        if name == "disp":
            texts[-1] = "[ra + disp]"
        else:
            texts.append(name)
    if "scalar" in row.fields:
        texts[-1] = f"{texts[-1]} | {_register_of(fields[-1])}"
    if row.second_word:
        texts.append("value")
    suffix = " group size" if "group" in row.fields else ""
    return f"{row.name}{types} {', '.join(texts)}{suffix}".rstrip()


class Unspeakable(ValueError):
    """An instruction that the source of this kernel cannot say: it names a task or queue it has not."""


@dataclass(frozen=True)
class Names:
    """What stands for numbers in an instruction's text; the defaults are the numbers themselves.

    A function may raise Unspeakable. `task` is told whether the task must be a local one.
    """

    label: Callable[[int], str | None] = lambda pc: None  # of a word address; None: has no label
    task: Callable[[int, bool], str] = lambda number, local: str(number)
    in_queue: Callable[[int], str] = str
    out_queue: Callable[[int], str] = str
    address: Callable[[int, Decoded], str] = lambda address, instruction: str(address)  # of a byte of data


def spell(decoded: Decoded, pc: int, names: Names | None = None) -> str:
    """The text of an instruction at word `pc`. Jump targets without a label are written as `. + words`."""
    names = names or Names()
    row = decoded.row
    parts = [
        row.name + _type_suffix(decoded),
        ", ".join(_operands(decoded, pc, names)),
        *_suffixes(decoded, names),
    ]
    return " ".join(part for part in parts if part)


def _type_suffix(decoded: Decoded) -> str:
    if not decoded.row.types:
        return ""
    element, source = decoded.types
    explicit = decoded.row.has_source_type and source is not element
    return f".{element.source_name}" + (f".{source.source_name}" if explicit else "")


def _operands(decoded: Decoded, pc: int, names: Names) -> Iterator[str]:
    row, values = decoded.row, decoded.values
    fields = operand_fields(row)
    for i, name in enumerate(fields):
        value, kind = values[name], FIELDS[name].kind
        if name == "disp":
            continue  # written with ra
        if name == "ra" and "disp" in fields:
            yield (
                f"[r{value} {'-' if values['disp'] < 0 else '+'} {abs(values['disp'])}]"
                if values["disp"]
                else f"[r{value}]"
            )
        elif kind == "register":
            yield f"r{value}"
        elif kind == "descriptor":
            if i == len(fields) - 1 and values.get("scalar"):
                yield f"r{value}"
            else:
                yield f"d{value}" + ("+" if values.get(f"advance_{name[1]}") else "")
        elif kind == "label":
            yield names.label(pc + value) or f". {'-' if value < 0 else '+'} {abs(value)}"
        elif kind == "address":
            yield names.address(value, decoded)
        elif kind == "queue":
            yield (names.in_queue if row.name == "recv" else names.out_queue)(value)
        elif kind == "task":
            yield names.task(value, False)
        elif kind == "choice":
            yield FIELDS[name].choices[value]
        else:
            yield str(value)
    if row.second_word:
        yield f"{values['value']:#x}" if values["value"] > 9 else str(values["value"])


def _suffixes(decoded: Decoded, names: Names) -> Iterator[str]:
    values = decoded.values
    if "group" in decoded.row.fields:
        yield f"group {FIELDS['group'].choices[values['group']]}"
    if values.get("asynchronous"):
        yield f"@ {values['thread']}"
        if values["priority"]:
            yield "priority high"
        if values["completion"]:
            action = LAUNCH_FIELDS["completion"].choices[values["completion"]]
            yield f"then {action} {names.task(values['launch_task'], action == 'activate')}"


def _register_of(descriptor: str) -> str:
    return "r" + descriptor[1:]


def types_text(row: Instruction, shorten: bool = False) -> str:
    """The legal types: `f16 f32`, or `f32.f16 f32.bf16` where the source's type differs."""
    names = [t.source_name if t is s else f"{t.source_name}.{s.source_name}" for t, s in row.types]
    return f"{len(names)} pairs of types" if shorten and len(names) > 8 else " ".join(names)
