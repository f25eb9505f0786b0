"""The `.data` section of a kernel as source text: declarations and values that give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod

import numpy as np

from . import floating
from .element_types import ElementType
from .errors import Rejected
from .program import Kernel, Symbol

_FORMATS = {ElementType.F16: floating.F16, ElementType.F32: floating.F32, ElementType.BF16: floating.BF16}
_QUANTISED = (ElementType.Q4, ElementType.Q8)
_ALIGNMENTS = tuple(1 << n for n in range(1, 13))
_PER_LINE = 16  # values


class UnwritableProgram(Rejected):
    """A program that source text cannot say; it can still be saved as an image."""

    def __init__(self, text: str) -> None:
        super().__init__(f"error[unsupported]: {text}", category="unsupported", help="save an image instead")


def data_lines(kernel: Kernel) -> Iterator[str]:
    """Declarations: first those that take up the bytes, in the order of addresses, then overlays."""
    own = _own_bytes(kernel)
    written = np.zeros(len(kernel.data), bool)
    end = 0
    for symbol in own:
        if align := _gap(end, symbol):
            yield f"align {align}"
        end = symbol.address + symbol.nbytes
        yield _declaration(symbol, "", kernel, written)
    if align := _last_gap(end, kernel):
        yield f"align {align}"
    for symbol in kernel.symbols.values():
        if all(symbol is not other for other in own):
            yield _declaration(symbol, f" at {symbol.address}", kernel, written)
    if (kernel.initialised & ~written).any():
        address = int(np.flatnonzero(kernel.initialised & ~written)[0])
        text = f"byte {address} of kernel `{kernel.name}` has a value, but no symbol there"
        raise UnwritableProgram(text)


def _own_bytes(kernel: Kernel) -> list[Symbol]:
    """The symbols that follow one another and take up all bytes; the others can be overlays of them.

    Of all such chains one with the most symbols, found from left to right: `chains` holds the best one for
    each end that can be reached.
    """
    chains: dict[int, list[Symbol]] = {0: []}
    for symbol in sorted(kernel.symbols.values(), key=lambda s: (s.address, s.nbytes, s.name)):
        reach = [chains[end] for end in chains if end <= symbol.address and _gap(end, symbol) is not None]
        if symbol.role == "descriptor":
            chains = {}  # never an overlay
        end = symbol.address + symbol.nbytes
        longest = max(reach, key=len, default=None)
        if longest is not None and len(longest) >= len(chains.get(end, [])):
            chains[end] = [*longest, symbol]
    last = max((s.address + s.nbytes for s in kernel.symbols.values()), default=0)
    if last not in chains or _last_gap(last, kernel) is None:
        raise UnwritableProgram(f"the data of kernel `{kernel.name}` has a gap between symbols")
    return chains[last]


def _whole_words(size: int) -> int:
    return -(-size // 4) * 4


def _alignment(symbol: Symbol) -> int:
    """The alignment that the assembler gives by itself."""
    return 2 if symbol.element in _QUANTISED else max(2, symbol.element.bytes)


def _gap(end: int, symbol: Symbol) -> int | None:
    """The `align` that takes the end of the data to a symbol: 0 if none is needed, None if none does."""
    natural = _alignment(symbol)
    if -(-end // natural) * natural == symbol.address:
        return 0
    aligned = (align for align in _ALIGNMENTS if -(-end // align) * align == symbol.address)
    return next(aligned, None) if symbol.address % natural == 0 else None


def _last_gap(end: int, kernel: Kernel) -> int | None:
    """The same behind the last symbol, before the padding to whole words."""
    size = len(kernel.data)
    if _whole_words(end) == size:
        return 0
    return next((align for align in _ALIGNMENTS if _whole_words(-(-end // align) * align) == size), None)


def _declaration(symbol: Symbol, place: str, kernel: Kernel, written: np.ndarray) -> str:
    here = slice(symbol.address, symbol.address + symbol.nbytes)
    known = kernel.initialised[here]
    shape = f"[{', '.join(map(str, symbol.shape))}]" if symbol.shape else ""
    kind = symbol.element.source_name
    if symbol.role == "descriptor":
        if not known.all():
            raise UnwritableProgram(f"descriptor `{symbol.name}` of kernel `{kernel.name}` has no value")
        written[here] = True
        halfwords = kernel.data[here].view("<u2").tolist()
        return f"{symbol.name}: descriptor [{', '.join(map(str, halfwords))}]"
    words = [f"{symbol.name}:"]
    if symbol.role == "fifo":
        words.append("fifo")
        written[symbol.address : symbol.address + 4] = True
    words.append(f"{kind}{shape}")
    if symbol.element in _QUANTISED:
        words.append(f"group {symbol.group}")
    if symbol.export:
        words.append("export")
    text = " ".join(words) + place
    if symbol.role == "data" and symbol.nbytes and known.all() and symbol.element not in _QUANTISED:
        written[here] = True
        text += f" = {_initial(symbol, kernel.data[here])}"
    return text


def _initial(symbol: Symbol, data: np.ndarray) -> str:
    bits = data.view("<u4" if symbol.element.bits == 32 else "<u2").tolist()
    if len(set(bits)) == 1:
        return number_text(bits[0], symbol.element)
    assert len(bits) == prod(symbol.shape)
    texts = [number_text(item, symbol.element) for item in bits]
    rows = [", ".join(texts[i : i + _PER_LINE]) for i in range(0, len(texts), _PER_LINE)]
    return "[" + ",\n      ".join(rows) + "]"


def number_text(bits: int, element: ElementType) -> str:
    """An element's bits as a number that assembles to these bits. Integers are written signed."""
    if element.is_integer:
        return str(bits - (1 << element.bits) if bits >> (element.bits - 1) else bits)
    fmt = _FORMATS[element]
    value = floating.double_from_bits(fmt, bits)
    text = "nan" if math.isnan(value) else repr(value)
    if floating.bits_from_double(fmt, value) != bits:
        raise UnwritableProgram(f"the {element.source_name} {bits:#x} has no decimal spelling")
    return text
