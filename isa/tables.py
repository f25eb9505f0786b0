"""The instruction table for readers: text, markdown (docs/isa.md), JSON, and one page for one instruction.

Everything is derived from `INSTRUCTIONS` and `FIELDS`. Numbers of cycles come from a machine's tables if the
caller hands a machine file's tables over as plain dicts (`engine`, `setup`, `rate`, `special`); without them
the classes are named. Regenerate the page with `python -m waferloom.isa.tables > docs/isa.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .diagnostics import did_you_mean
from .element_types import ElementType
from .errors import Usage
from .fields import FIELDS, IMMEDIATE_FIELDS, LAUNCH_FIELDS, Field
from .instructions import BY_NAME, INSTRUCTIONS, Instruction, Unit, rate_key, setup_key
from .spelling import operand_fields, template, types_text

__all__ = ["as_json", "find_examples", "markdown_page", "one_page", "text_table", "timing"]

Machine = Mapping[str, Any]
SCHEMA = 1

# The heading under which an instruction and those behind it stand.
FAMILIES = {
    "add": "Scalar integers",
    "beq": "Branches and jumps",
    "fadd": "Scalar floating point",
    "ld": "Memory and descriptors",
    "vmov": "Vectors",
    "send": "Fabric",
    "activate": "Tasks",
    "tsc": "Measuring and checking",
}

_CLASSES = {  # scalar latency class -> what it means, and the same with a machine's numbers
    "none": ("1 cycle", "1 cycle"),
    "integer": ("1 cycle", "1 cycle"),
    "load": ("1 cycle", "1 cycle"),
    "floating": ("fp_latency", "{fp_latency} cycles"),
    "branch": ("branch_not_taken or branch_taken", "{branch_not_taken} or {branch_taken} cycles"),
    "jump": ("branch_taken", "{branch_taken} cycles"),
}


def families() -> list[tuple[str, list[Instruction]]]:
    """The table, cut at the headings."""
    result: list[tuple[str, list[Instruction]]] = []
    for row in INSTRUCTIONS:
        if row.name in FAMILIES or not result:
            result.append((FAMILIES.get(row.name, "Instructions"), []))
        result[-1][1].append(row)
    return result


def timing(row: Instruction, machine: Machine | None = None) -> str:
    """The timing class of a row; with a machine, in cycles (vectors: set-up, then elements per cycle)."""
    if row.unit is Unit.SCALAR:
        if row.latency in _CLASSES:
            words, numbers = _CLASSES[row.latency]
            return numbers.format(**machine["engine"]) if machine else words
        return f"{machine['special'][row.latency]} cycles" if machine else row.latency
    scalars = (False, True) if "scalar" in row.fields else (False,)
    setups = dict.fromkeys(setup_key(row, t, s, scalar) for t, s in row.types for scalar in scalars)
    if not machine:
        keys = dict.fromkeys(rate_key(row, t, s) for t, s in row.types)
        return f"set-up {', '.join(setups)}; rate {', '.join(keys)}"
    rates: dict[str, list[str]] = {}
    for t, s in row.types:
        name = t.source_name if t is s else f"{t.source_name}.{s.source_name}"
        rates.setdefault(f"{machine['rate'][rate_key(row, t, s)]:g}", []).append(name)
    cycles = dict.fromkeys(f"{machine['setup'][key]}" for key in setups)
    per_cycle = [rate if len(rates) == 1 else f"{rate} ({' '.join(names)})" for rate, names in rates.items()]
    return f"set-up {' or '.join(cycles)}, then {', '.join(per_cycle)} per cycle"


def text_table(machine: Machine | None = None) -> str:
    """All instructions as aligned columns under their families."""
    lines: list[str] = []
    wide = max(len(template(row)) for row in INSTRUCTIONS)
    for title, rows in families():
        lines += ["", title] if lines else [title]
        for row in rows:
            vector = row.unit is Unit.VECTOR
            cycles = f"{'vector' if vector else timing(row, machine):13}  " if machine else ""
            lines.append(f"  {row.opcode:3}  {template(row):{wide}}  {cycles}{row.meaning}")
            details = [] if not row.types else [types_text(row, shorten=True)]
            if machine and vector:
                details.append(timing(row, machine))
            if details:
                lines.append(f"       {'':{wide}}  [{'; '.join(details)}]")
    return "\n".join(lines) + "\n"


# --- markdown ---

_INTRODUCTION = """\
# Instructions

<!-- Generated from isa/instructions.py and isa/fields.py: `python -m waferloom.isa.tables > docs/isa.md`. -->

Every instruction is one 32-bit word; an asynchronous vector instruction and `li32` have a second one. Bits
that no operand of an instruction uses must be zero. `T` is the element type, `S` the source's where it may
differ; `d | r`: the last source may be a register. Timing: after how many cycles the result is ready; set-up
class and rate of a vector instruction. What they mean stands in machine.md §7, their values in the machine
files.
`waferloom isa NAME` shows one instruction with its bits."""


def markdown_page() -> str:
    """docs/isa.md."""
    parts = [_INTRODUCTION]
    for title, rows in families():
        parts.append(f"\n## {title}\n")
        parts.append("| opcode | instruction | types | timing | meaning |\n|---|---|---|---|---|")
        for row in rows:
            cells = (f"{row.opcode}", f"`{template(row)}`", types_text(row), timing(row), row.meaning)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    parts.append("\n## Fields\n")
    parts.append("| field | bits | kind | legal values | used by |\n|---|---|---|---|---|")
    for field in FIELDS.values():
        users = [row.name for row in INSTRUCTIONS if field.name in row.fields]
        used = "every instruction" if field.name == "opcode" else _few(users)
        parts.append(f"| `{field.name}` | {_bits(field)} | {field.kind} | {_legal(field)} | {used} |")
    for title, fields in (
        ("Second word of an asynchronous vector instruction", LAUNCH_FIELDS),
        ("Second word of `li32`", IMMEDIATE_FIELDS),
    ):
        parts.append(f"\n## {title}\n\n| field | bits | kind | legal values |\n|---|---|---|---|")
        parts += [f"| `{f.name}` | {_bits(f)} | {f.kind} | {_legal(f)} |" for f in fields.values()]
    return "\n".join(parts) + "\n"


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _bits(field: Field) -> str:
    return f"{field.high}:{field.low}" if field.width > 1 else f"{field.low}"


def _legal(field: Field) -> str:
    if field.kind == "type":
        return " ".join(t.source_name for t in ElementType)
    return "0 or 1" if field.kind == "flag" else field.legal


# --- JSON ---


def as_json(machine: Machine | None = None) -> dict[str, Any]:
    """The whole table as plain data; `schema` counts up when a key changes its meaning."""
    return {
        "schema": SCHEMA,
        "word_bits": 32,
        "fields": {name: _field_json(field) for name, field in FIELDS.items()},
        "launch_fields": {name: _field_json(field) for name, field in LAUNCH_FIELDS.items()},
        "immediate_fields": {name: _field_json(field) for name, field in IMMEDIATE_FIELDS.items()},
        "instructions": [_row_json(title, row, machine) for title, rows in families() for row in rows],
    }


def _field_json(field: Field) -> dict[str, Any]:
    return {
        "high": field.high,
        "low": field.low,
        "kind": field.kind,
        "signed": field.signed,
        "minimum": field.minimum,
        "maximum": len(field.choices) - 1 if field.choices else field.maximum,
        "choices": list(field.choices),
    }


def _row_json(title: str, row: Instruction, machine: Machine | None) -> dict[str, Any]:
    return {
        "name": row.name,
        "opcode": row.opcode,
        "family": title,
        "unit": row.unit.name.lower(),
        "syntax": template(row),
        "meaning": row.meaning,
        "fields": list(row.fields),
        "operands": list(operand_fields(row)),
        "second_word": "immediate" if row.second_word else "launch" if "asynchronous" in row.fields else None,
        "types": [[t.source_name, s.source_name] for t, s in row.types],
        "timing": timing(row, machine),
    }


# --- one instruction ---


def one_page(name: str, machine: Machine | None = None, example: str | None = None) -> str:
    """Everything about one instruction: bits, operands, types, timing, example. Usage if there is none."""
    if name not in BY_NAME:
        raise Usage(f"no instruction is called `{name}`", help=did_you_mean(name, BY_NAME))
    row = BY_NAME[name]
    lines = [f"{template(row)}", f"    {row.meaning}", "", *diagram(row), ""]
    fields = [FIELDS[field] for field in row.fields]
    lines += _field_lines(fields, "operand")
    if row.second_word:
        lines += ["", *_field_lines(IMMEDIATE_FIELDS.values(), "second word")]
    if "asynchronous" in row.fields:
        lines += ["", *_field_lines(LAUNCH_FIELDS.values(), "second word, if asynchronous")]
    lines += ["", f"types    {types_text(row)}"] if row.types else [""]
    lines.append(f"timing   {timing(row, machine)}")
    lines.append(f"unit     {row.unit.name.lower()}")
    if example:
        lines.append(f"example  {example}")
    return "\n".join(lines) + "\n"


def _field_lines(fields: Iterable[Field], title: str) -> list[str]:
    wide = max(14, len(title))
    lines = [f"{title:{wide}} bits  kind        legal values"]
    lines += [f"{field.name:{wide}} {_bits(field):5} {field.kind:10}  {_legal(field)}" for field in fields]
    return lines if len(lines) > 1 else ["no operands"]


def diagram(row: Instruction) -> list[str]:
    """The first word as a box of fields, bit numbers above."""
    cells: list[tuple[int, int, str]] = [(31, 25, f"{row.opcode:07b}")]
    taken = sorted((FIELDS[name] for name in row.fields), key=lambda field: -field.high)
    next_bit = 24
    for field in taken:
        if field.high < next_bit:
            cells.append((next_bit, field.high + 1, "0"))
        cells.append((field.high, field.low, field.name))
        next_bit = field.low - 1
    if next_bit >= 0:
        cells.append((next_bit, 0, "0"))
    numbers, edge, body = "", "+", "|"
    for high, low, name in cells:
        width = max(len(name) + 2, len(f"{high} {low}") if high != low else len(f"{high}") + 2)
        numbers += " " + (f"{high}{low:>{width - len(str(high))}}" if high != low else f"{high:^{width}}")
        edge += "-" * width + "+"
        body += f"{name:^{width}}|"
    return [numbers.rstrip(), edge, body, edge]


def find_examples(folder: str | Path) -> dict[str, str]:
    """Instruction -> an example file in `folder` that uses it: the one named after it, else the first."""
    found: dict[str, str] = {}
    for path in sorted(Path(folder).glob("*.loom")):
        for line in path.read_text("utf-8").splitlines():
            for word in line.split(";", 1)[0].split()[:2]:
                name = word.split(".", 1)[0]
                if name in BY_NAME and (name not in found or path.stem.removeprefix("ok_") == name):
                    found[name] = str(path)
    return found


if __name__ == "__main__":
    print(markdown_page(), end="")
