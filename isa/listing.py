"""Other outputs of the assembler: listing, raw bytes, hex words, symbol table, JSON.

`emit` makes each of them as bytes; the program image, the usual output, is image.py's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .disassembler import code_lines
from .errors import Usage
from .image import program_digest
from .instructions import Decoded, Unit, rate_key, setup_key
from .program import Kernel, Program, Symbol
from .records import to_tree
from .regions import rectangles
from .spelling import Names
from .tables import Machine, timing

__all__ = ["FORMATS", "cost", "emit", "listing"]

SCHEMA = 1


def cost(decoded: Decoded, machine: Machine | None = None) -> str:
    """What an instruction costs: its timing class, or a machine's cycles; n: number of elements."""
    row = decoded.row
    if row.unit is Unit.SCALAR:
        return timing(row, machine)
    t, s = decoded.types
    setup, rate = setup_key(row, t, s, bool(decoded.values.get("scalar"))), rate_key(row, t, s)
    return (
        f"{machine['setup'][setup]} + n / {machine['rate'][rate]:g}" if machine else f"{setup} + n / {rate}"
    )


# --- listing ---


def listing(program: Program, machine: Machine | None = None) -> str:
    """Per kernel: address, words, cost, source line of every instruction; a symbol table at the end."""
    lines = []
    for kernel in program.kernels:
        lines += [f"kernel {kernel.name}: {_sizes(kernel)}", *_code(kernel, program, machine), ""]
    return "\n".join([*lines, "symbols", *_symbol_lines(program)]) + "\n"


def _sizes(kernel: Kernel) -> str:
    data, code = f"{len(kernel.data)} bytes of data", f"{len(kernel.code)} words of code"
    return f"{data}, {code}, {kernel.sram_bytes} bytes of SRAM"


def _code(kernel: Kernel, program: Program, machine: Machine | None) -> Iterator[str]:
    texts = {file: text.split("\n") for file, text in program.sources.items()}
    heads: dict[int, list[str]] = {}
    for task in kernel.tasks.values():
        heads.setdefault(task.pc, []).append(f"task {task.name} (id {task.id})")
    for name, pc in kernel.labels.items():
        heads.setdefault(pc, []).append(f"{name}:")
    yield f"{'addr':6}{'words':19}{'cost':32}{'line':>5}  source"
    last = None
    for line in code_lines(kernel.code, Names()):
        for head in heads.get(line.pc, []):
            yield f"{'':62}  {head}"
        place = kernel.locations[line.pc] if line.pc < len(kernel.locations) else None
        number, text = "", line.text
        if place is not None and place.file in texts and place.line <= len(texts[place.file]):
            number = str(place.line)
            # One source line may be several instructions: the others show what they are.
            source = texts[place.file][place.line - 1].strip()
            text = source if place != last else f"  {line.text}"
        last = place
        words = " ".join(f"{word:08x}" for word in line.words)
        price = cost(line.decoded, machine) if line.decoded else ""
        yield f"{line.pc:04x}  {words:19}{price:32}{number:>5}  {text}".rstrip()


def _symbol_lines(program: Program) -> Iterator[str]:
    yield f"{'kernel':16}{'symbol':20}{'address':>8}{'bytes':>8}  type"
    for kernel in program.kernels:
        for symbol in sorted(kernel.symbols.values(), key=lambda s: (s.address, s.name)):
            kind = _kind(symbol)
            yield f"{kernel.name:16}{symbol.name:20}{symbol.address:8}{symbol.nbytes:8}  {kind}"
        for name, pc in sorted(kernel.labels.items(), key=lambda item: (item[1], item[0])):
            yield f"{kernel.name:16}{name:20}{pc:8}{'':8}  label (word)"
        for number, task in sorted(kernel.tasks.items()):
            kind = f"{task.kind.name.lower()} task {number} (word)"
            yield f"{kernel.name:16}{task.name:20}{task.pc:8}{'':8}  {kind}"


def _kind(symbol: Symbol) -> str:
    if symbol.role == "descriptor":
        return "descriptor"
    shape = f"[{', '.join(map(str, symbol.shape))}]" if symbol.shape else ""
    words = [symbol.role] * (symbol.role == "fifo") + [symbol.element.source_name + shape]
    return " ".join([*words, *["export"] * symbol.export])


# --- bytes, words, JSON ---


def sram_bytes(kernel: Kernel) -> bytes:
    """A PE's SRAM before the run: data, then code, little-endian."""
    return kernel.data.tobytes() + kernel.code.astype("<u4").tobytes()


def _hex(program: Program) -> str:
    """Words as `$readmemh` reads them: `@` and a word address, then one word per line."""
    lines = []
    for kernel in program.kernels:
        content = sram_bytes(kernel)
        words = np.frombuffer(content + bytes(-len(content) % 4), "<u4")
        lines += [f"// kernel {kernel.name}: {_sizes(kernel)}", "@0", *(f"{word:08x}" for word in words)]
    return "\n".join(lines) + "\n"


def as_json(program: Program) -> dict[str, Any]:
    """The program as plain data: kernels with code in hex words, placement and routes as rectangles."""
    tree = to_tree(program, {})
    for kernel, out in zip(program.kernels, tree["kernels"], strict=True):
        out["code"] = [f"{word:08x}" for word in kernel.code]
        out["data"] = kernel.data.tobytes().hex()
        out["initialised_bytes"] = int(kernel.initialised.sum())
        out["sram_bytes"] = kernel.sram_bytes
        out["instructions"] = [line.text for line in code_lines(kernel.code, Names())]
        del out["initialised"]
    tree["placement"] = [
        {"region": str(r), "kernel": program.kernels[i].name}
        for r, i in rectangles(program.placement.astype(int), -1)
    ]
    tree["routes"] = {
        str(colour): [{"region": str(r), "route": i - 1} for r, i in rectangles(table.astype(int), 0)]
        for colour, table in program.routes.items()
    }
    for name in ("in_colour", "out_colour", "pe_values"):
        del tree[name]
    return {"schema": SCHEMA, "digest": program_digest(program), "program": tree}


def _raw(program: Program, kernel: str | None) -> bytes:
    names = [k.name for k in program.kernels]
    if kernel is None and len(names) != 1:
        raise Usage(
            f"raw bytes are those of one kernel; the program has {len(names)}: {', '.join(names)}",
            help="name one of them",
        )
    for k in program.kernels:
        if kernel in (None, k.name):
            return sram_bytes(k)
    raise Usage(f"no kernel is called `{kernel}`", help=f"kernels: {', '.join(names)}")


_TEXT: dict[str, Callable[[Program], str]] = {
    "hex": _hex,
    "json": lambda program: json.dumps(as_json(program), indent=1, sort_keys=True) + "\n",
    "symbols": lambda program: "\n".join(_symbol_lines(program)) + "\n",
}
FORMATS = ("bin", "listing", *_TEXT)


def emit(program: Program, form: str, kernel: str | None = None, machine: Machine | None = None) -> bytes:
    """The program in one of `FORMATS`. `kernel`: whose bytes `bin` means; `machine`: for the listing."""
    if form == "bin":
        return _raw(program, kernel)
    if form == "listing":
        return listing(program, machine).encode()
    if form not in _TEXT:
        raise Usage(f"no output format `{form}`", help=f"formats: {', '.join(FORMATS)}")
    return _TEXT[form](program).encode()
