"""What each instruction of the table means, one line per row; never when it happens (pe.py, vector.py).

Scalar meanings change the PE they are given. Vector meanings compute one element from bits: (t, s, d, a, b)
with t the result's type, s the sources', d the old destination (vmac) or the running register (reductions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...isa import numbers, special
from ...isa.element_types import ElementType
from ...isa.program import Descriptor, DescriptorKind
from ..outcome import FaultCode
from .router import Stop, Wavelet

if TYPE_CHECKING:
    from .pe import Pe

Values = dict[str, int]
Scalar = Callable[["Pe", Values, int], None]  # (pe, field values, cycle)
Element = Callable[[int, int, int, int, int], int]  # (t, s, d, a, b) -> bits

WORD = 0xFFFFFFFF
I16, I32 = ElementType.I16, ElementType.I32


def narrow(t: int, value: int) -> int:
    """A register as an operand of type t: its low bits."""
    return value & ((1 << ElementType(t).bits) - 1)


def widen(t: int, bits: int) -> int:
    """A result of type t as a register: i16 sign-extended, everything else zero-extended."""
    return numbers.signed(I16, bits) & WORD if t == I16 else bits


# --- scalar rows, by shape ---


def _integer(function: Callable[[int, int], int], second: str = "rb") -> Scalar:
    def meaning(pe: Pe, v: Values, t: int) -> None:
        b = pe.registers[v["rb"]] if second == "rb" else v[second]
        pe.write(v["rd"], function(pe.registers[v["ra"]], b) & WORD, t + 1)

    return meaning


def _branch(condition: Callable[[int, int], bool]) -> Scalar:
    def meaning(pe: Pe, v: Values, t: int) -> None:
        if condition(pe.registers[v["rd"]], pe.registers[v["ra"]]):
            pe.jump(pe.pc + v["offset"], t)
        else:
            pe.next_issue = t + pe.spec.engine.branch_not_taken

    return meaning


def _floating(function: Element, latency: str = "", result: int | None = None) -> Scalar:
    """`latency`: key of the machine's special table; `result`: type of the result if it is not `type`."""

    def meaning(pe: Pe, v: Values, t: int) -> None:
        kind = v["type"]
        source = v.get("source", kind)
        d = narrow(kind, pe.registers[v["rd"]])
        a = narrow(source, pe.registers[v["ra"]])
        b = narrow(source, pe.registers[v["rb"]]) if "rb" in v else 0
        cycles = pe.spec.special[latency] if latency else pe.spec.engine.fp_latency
        bits = function(kind, source, d, a, b)
        pe.write(v["rd"], widen(kind if result is None else result, bits), t + cycles)

    return meaning


def _jump_and_link(pe: Pe, v: Values, t: int) -> None:
    pe.write(v["rd"], pe.pc + 1, t + 1)
    pe.jump(pe.pc + v["jump"], t)


def _load(pe: Pe, v: Values, t: int, address: int) -> None:
    size = ElementType(v["type"]).bytes
    pe.check(address, size, reading=True)
    pe.write(v["rd"], widen(v["type"], pe.load(address, size)), t + 1)


def _store(pe: Pe, v: Values, address: int) -> None:
    size = ElementType(v["type"]).bytes
    pe.check(address, size, reading=False)
    pe.store(address, size, narrow(v["type"], pe.registers[v["rd"]]))


def _displaced(pe: Pe, v: Values) -> int:
    return (pe.registers[v["ra"]] + v["disp"]) & WORD


def _load_descriptor(pe: Pe, v: Values, t: int) -> None:
    halfwords: list[int] = []
    wanted = 1
    while len(halfwords) < wanted:
        address = v["address"] + 2 * len(halfwords)
        pe.check(address, 2, reading=True)
        halfwords.append(pe.load(address, 2))
        wanted = 2 + 2 * ((halfwords[0] >> 2 & 3) + 1)
    try:
        pe.descriptors[v["dd"]] = Descriptor.from_halfwords(halfwords)
    except ValueError:
        raise Stop(FaultCode.DESCRIPTOR, v["dd"]) from None


def _change_descriptor(pe: Pe, v: Values, add: bool) -> None:
    old = pe.descriptors[v["dd"]]
    part = v["part"]
    dimension = (part - 1) % 4
    if old is None or (part and dimension >= len(old.extents)):
        raise Stop(FaultCode.DESCRIPTOR, v["dd"])
    halfwords = old.halfwords
    n = len(old.extents)
    place = 1 if part == 0 else 2 + dimension if part <= 4 else 2 + n + dimension
    value = pe.registers[v["ra"]] + (halfwords[place] if add else 0)
    halfwords[place] = value & 0xFFFF
    pe.descriptors[v["dd"]] = Descriptor.from_halfwords(halfwords)


def _send(control: bool) -> Scalar:
    def meaning(pe: Pe, v: Values, t: int) -> None:
        queue = pe.usable_queue(DescriptorKind.FABRIC_OUT, v["queue"])
        queue.enter(t, Wavelet(pe.registers[v["ra"]], control))

    return meaning


def _receive(pe: Pe, v: Values, t: int) -> None:
    queue = pe.usable_queue(DescriptorKind.FABRIC_IN, v["queue"])
    pe.write(v["ra"], queue.leave(t).payload, t + 1)


def _block(pe: Pe, v: Values, t: int) -> None:
    pe.known_task(v["task"]).blocked = True


def _end(pe: Pe, v: Values, t: int) -> None:
    pe.task = -1


def _done(pe: Pe, v: Values, t: int) -> None:
    pe.done = True


def _trap(pe: Pe, v: Values, t: int) -> None:
    raise Stop(FaultCode.TRAP, v["trap_code"])


def _assert(pe: Pe, v: Values, t: int) -> None:
    if pe.registers[v["ra"]] == 0:
        raise Stop(FaultCode.TRAP, v["trap_code"])


SCALAR: dict[str, Scalar] = {
    "add": _integer(lambda a, b: a + b),
    "sub": _integer(lambda a, b: a - b),
    "mul": _integer(lambda a, b: a * b),
    "and": _integer(lambda a, b: a & b),
    "or": _integer(lambda a, b: a | b),
    "xor": _integer(lambda a, b: a ^ b),
    "shl": _integer(lambda a, b: numbers.shift_left(I32, a, b)),
    "shr": _integer(lambda a, b: numbers.shift_right(I32, a, b)),
    "sar": _integer(lambda a, b: numbers.shift_right_signed(I32, a, b)),
    "addi": _integer(lambda a, b: a + b, "imm"),
    "muli": _integer(lambda a, b: a * b, "imm"),
    "andi": _integer(lambda a, b: a & b, "imm"),
    "shli": _integer(lambda a, b: numbers.shift_left(I32, a, b), "shift"),
    "shri": _integer(lambda a, b: numbers.shift_right(I32, a, b), "shift"),
    "sari": _integer(lambda a, b: numbers.shift_right_signed(I32, a, b), "shift"),
    "li": lambda pe, v, t: pe.write(v["rd"], v["imm"] & WORD, t + 1),
    "li32": lambda pe, v, t: pe.write(v["rd"], v["value"], t + 1),
    "beq": _branch(lambda a, b: a == b),
    "bne": _branch(lambda a, b: a != b),
    "blt": _branch(lambda a, b: numbers.less(I32, a, b)),
    "bge": _branch(lambda a, b: not numbers.less(I32, a, b)),
    "bltu": _branch(lambda a, b: a < b),
    "bgeu": _branch(lambda a, b: a >= b),
    "jmp": lambda pe, v, t: pe.jump(pe.pc + v["jump"], t),
    "jal": _jump_and_link,
    "jr": lambda pe, v, t: pe.jump(pe.registers[v["ra"]], t),
    "fadd": _floating(lambda t, s, d, a, b: numbers.add(t, a, b)),
    "fsub": _floating(lambda t, s, d, a, b: numbers.sub(t, a, b)),
    "fmul": _floating(lambda t, s, d, a, b: numbers.mul(t, a, b)),
    "fmac": _floating(lambda t, s, d, a, b: numbers.mac(t, s, d, a, b)),
    "fmax": _floating(lambda t, s, d, a, b: numbers.maximum(t, a, b)),
    "flt": _floating(lambda t, s, d, a, b: int(numbers.less(t, a, b)), result=I32),
    "fle": _floating(lambda t, s, d, a, b: int(numbers.less_equal(t, a, b)), result=I32),
    "cvt": _floating(lambda t, s, d, a, b: numbers.convert(t, s, a)),
    "frcp": _floating(lambda t, s, d, a, b: special.reciprocal(t, a), "reciprocal"),
    "frsqrt": _floating(lambda t, s, d, a, b: special.reciprocal_square_root(t, a), "rsqrt"),
    "fexp": _floating(lambda t, s, d, a, b: special.exp(t, a), "exp"),
    "flog": _floating(lambda t, s, d, a, b: special.log(t, a), "log"),
    "fdiv": _floating(lambda t, s, d, a, b: special.divide(t, a, b), "divide"),
    "ld": lambda pe, v, t: _load(pe, v, t, _displaced(pe, v)),
    "st": lambda pe, v, t: _store(pe, v, _displaced(pe, v)),
    "ldm": lambda pe, v, t: _load(pe, v, t, v["address"]),
    "stm": lambda pe, v, t: _store(pe, v, v["address"]),
    "ldd": _load_descriptor,
    "setd": lambda pe, v, t: _change_descriptor(pe, v, add=False),
    "addd": lambda pe, v, t: _change_descriptor(pe, v, add=True),
    "send": _send(control=False),
    "sendc": _send(control=True),
    "recv": _receive,
    "activate": lambda pe, v, t: pe.activate(v["task"]),
    "block": _block,
    "unblock": lambda pe, v, t: pe.unblock(v["task"]),
    "end": _end,
    "done": _done,
    "tsc": lambda pe, v, t: pe.write(v["rd"], t & WORD, t + 1),
    "trap": _trap,
    "assert": _assert,
}

VECTOR: dict[str, Element] = {
    "vmov": lambda t, s, d, a, b: a,
    "vadd": lambda t, s, d, a, b: numbers.add(t, a, b),
    "vsub": lambda t, s, d, a, b: numbers.sub(t, a, b),
    "vmul": lambda t, s, d, a, b: numbers.mul(t, a, b),
    "vmac": lambda t, s, d, a, b: numbers.mac(t, s, d, a, b),
    "vmax": lambda t, s, d, a, b: numbers.maximum(t, a, b),
    "vmin": lambda t, s, d, a, b: numbers.minimum(t, a, b),
    "vneg": lambda t, s, d, a, b: numbers.negate(t, a),
    "vabs": lambda t, s, d, a, b: numbers.absolute(t, a),
    "vcvt": lambda t, s, d, a, b: numbers.convert(t, s, a),
    "vand": lambda t, s, d, a, b: a & b,
    "vor": lambda t, s, d, a, b: a | b,
    "vxor": lambda t, s, d, a, b: a ^ b,
    "vshl": lambda t, s, d, a, b: numbers.shift_left(t, a, b),
    "vshr": lambda t, s, d, a, b: numbers.shift_right(t, a, b),
    "vdeq": lambda t, s, d, a, b: a,  # its operand (vector.py) already delivers weights
    "vexp": lambda t, s, d, a, b: special.exp(t, a),
    "vrcp": lambda t, s, d, a, b: special.reciprocal(t, a),
    "vrsqrt": lambda t, s, d, a, b: special.reciprocal_square_root(t, a),
    "vdiv": lambda t, s, d, a, b: special.divide(t, a, b),
    "vred": lambda t, s, d, a, b: numbers.add(t, d, a, s),
    "vredmax": lambda t, s, d, a, b: numbers.maximum(t, d, a),
    "vdot": lambda t, s, d, a, b: numbers.mac(t, s, d, a, b),
}
