"""Random well-formed programs that source text can say: random code, data, placement, routes and streams.

They need not make sense; they are for round trips through text and image files, not for running.
"""

from random import Random

import numpy as np
from waferloom.isa import floating
from waferloom.isa.dequantise import q4_group_bytes, q8_group_bytes
from waferloom.isa.element_types import ElementType
from waferloom.isa.fields import FIELDS, LAUNCH_FIELDS
from waferloom.isa.instructions import INSTRUCTIONS, IllegalInstruction, Instruction, decode, encode
from waferloom.isa.program import (
    COLOURS,
    QUEUES,
    TASKS,
    EdgePort,
    Kernel,
    Port,
    Program,
    Route,
    RoutePosition,
    Symbol,
    Task,
    TaskKind,
)

ELEMENTS = [ElementType.I16, ElementType.I32, ElementType.F16, ElementType.F32, ElementType.BF16]
FORMATS = {ElementType.F16: floating.F16, ElementType.F32: floating.F32, ElementType.BF16: floating.BF16}


def random_instruction(rng: Random, row: Instruction | None = None) -> list[int]:
    """The words of a random legal instruction."""
    row = row or rng.choice(INSTRUCTIONS)
    while True:
        values = {}
        for name, field in [(n, FIELDS[n]) for n in row.fields] + list(LAUNCH_FIELDS.items()):
            most = len(field.choices) - 1 if field.choices else field.maximum
            near = [field.minimum, most, rng.randint(field.minimum, most)]
            key = "launch_task" if field is LAUNCH_FIELDS["task"] else name
            values[key] = rng.choice(near)
        values["value"] = rng.choice([0, 9, 10, 0xFFFFFFFF, rng.getrandbits(32)])
        if row.types:
            element, source = rng.choice(row.types)
            values |= {"type": element, "source": source}
        try:
            return encode(row.name, values)
        except IllegalInstruction:
            continue  # such as an advanced register operand


def random_code(rng: Random, count: int, wild: float = 0.1) -> list[int]:
    """Random instructions, and now and then any word at all."""
    words: list[int] = []
    for _ in range(count):
        words += [rng.getrandbits(32)] if rng.random() < wild else random_instruction(rng)
    return words


def is_legal(word: int) -> bool:
    """Whether a word is an instruction by itself."""
    try:
        return decode([word], 0).words == 1
    except IllegalInstruction:
        return False


def _bits(rng: Random, element: ElementType) -> int:
    bits = rng.choice([0, 1 << (element.bits - 1), (1 << element.bits) - 1, rng.getrandbits(element.bits)])
    if element.is_float:
        fmt = FORMATS[element]
        value = floating.double_from_bits(fmt, bits)
        bits = floating.bits_from_double(fmt, value)  # canonical NaNs: text has no other
    return bits


def _data(rng: Random, kernel_number: int) -> tuple[dict[str, Symbol], np.ndarray, np.ndarray]:
    symbols: dict[str, Symbol] = {}
    contents: list[tuple[int, bytes]] = []
    end = 0
    for n in range(rng.randint(0, 8)):
        kind = rng.choice(["data", "data", "data", "scalar", "fifo", "descriptor", "weights", "overlay"])
        name, element = f"s{n}", rng.choice(ELEMENTS)
        shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 5) for _ in range(rng.randint(1, 3)))
        natural, role, group = max(2, element.bytes), "data", 32
        if kind == "scalar":
            shape, name = (), f"k{n}"
        nbytes = int(np.prod(shape, dtype=int)) * element.bytes
        if kind == "fifo":
            shape, role = (rng.randint(1, 9),), "fifo"
            nbytes = shape[0] * element.bytes + 4
        if kind == "descriptor":
            shape, role, element = (rng.randint(4, 10),), "descriptor", ElementType.I16
            nbytes, natural = 2 * shape[0], 2
        if kind == "weights":
            element, group = rng.choice([ElementType.Q4, ElementType.Q8]), rng.choice([32, 16, 8, 4])
            shape, natural = (rng.randint(1, 3), group * rng.randint(1, 2)), 2
            size = q4_group_bytes(group) if element is ElementType.Q4 else q8_group_bytes(group)
            nbytes = shape[0] * shape[1] // group * size
        if kind == "overlay":
            if nbytes > end or nbytes == 0:
                continue
            address = rng.randrange(0, end - nbytes + 1, natural)
            symbols[name] = Symbol(name, element, shape, address, nbytes)
            continue
        if rng.random() < 0.2:
            natural = max(natural, rng.choice([4, 8, 64]))
        end = -(-end // natural) * natural
        symbols[name] = Symbol(
            name, element, shape, end, nbytes, role != "descriptor" and rng.random() < 0.3, role, group
        )
        if role == "descriptor":
            contents.append((end, rng.randbytes(nbytes)))
        elif role == "fifo":
            contents.append((end, bytes(4)))
        elif kind in ("data", "scalar") and rng.random() < 0.6:
            width = element.bytes
            one = _bits(rng, element)
            values = [one if rng.random() < 0.3 else _bits(rng, element) for _ in range(nbytes // width)]
            contents.append((end, b"".join(v.to_bytes(width, "little") for v in values)))
        end += nbytes
    size = -(-end // 4) * 4
    data, initialised = np.zeros(size, np.uint8), np.zeros(size, bool)
    for address, content in contents:
        data[address : address + len(content)] = np.frombuffer(content, np.uint8)
        initialised[address : address + len(content)] = True
    return symbols, data, initialised


def _has_odd_nan(symbols: dict[str, Symbol], data: np.ndarray, initialised: np.ndarray) -> bool:
    """Whether an overlay shows bits as a float that text cannot say."""
    for symbol in symbols.values():
        if symbol.role != "data" or symbol.element not in FORMATS:
            continue
        here = slice(symbol.address, symbol.address + symbol.nbytes)
        if initialised[here].all():
            fmt = FORMATS[symbol.element]
            for bits in data[here].view("<u4" if symbol.element.bits == 32 else "<u2").tolist():
                if floating.bits_from_double(fmt, floating.double_from_bits(fmt, bits)) != bits:
                    return True
    return False


def random_kernel(rng: Random, number: int) -> Kernel:
    code = random_code(rng, rng.randint(0, 30))
    symbols, data, initialised = _data(rng, number)
    while _has_odd_nan(symbols, data, initialised):
        symbols, data, initialised = _data(rng, number)
    in_queues = {q: f"in{q}" for q in sorted(rng.sample(range(QUEUES), rng.randint(0, QUEUES)))}
    out_queues = {q: f"out{q}" for q in sorted(rng.sample(range(QUEUES), rng.randint(0, QUEUES)))}
    tasks = {}
    for i in sorted(rng.sample(range(TASKS), rng.randint(0, 6))):
        kinds = [TaskKind.LOCAL, TaskKind.CONTROL] + [TaskKind.DATA] * bool(in_queues)
        kind = rng.choice(kinds)
        queue = rng.choice(list(in_queues)) if kind is TaskKind.DATA else -1
        entry = kind is TaskKind.LOCAL and rng.random() < 0.5
        pc = rng.randint(0, len(code))
        tasks[i] = Task(i, f"t{i}", kind, pc, queue, rng.randint(0, 1), entry, rng.random() < 0.2)
    labels = {f"l{n}": rng.randint(0, len(code)) for n in range(rng.randint(0, 4))}
    return Kernel(
        f"kernel{number}", np.array(code, np.uint32), data, initialised, symbols, tasks, labels,
        [None] * len(code), in_queues, out_queues,
    )  # fmt: skip


def _route(rng: Random) -> Route:
    positions = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        inputs = frozenset(rng.sample(list(Port), rng.choice([1, 1, 1, 2])))
        outputs = frozenset(rng.sample(list(Port), rng.randint(1, 5))) - (inputs - {Port.RAMP})
        positions.append(RoutePosition(inputs, outputs or frozenset({Port.RAMP})))
    merge = any(len(p.inputs) > 1 for p in positions) or rng.random() < 0.1
    return Route(tuple(positions), *(rng.random() < 0.3 for _ in range(3)), merge)


def _stripes(rng: Random, height: int, width: int, low: int, high: int) -> np.ndarray:
    """Labels low..high in blocks, stripes, a checkerboard, or anyhow."""
    y, x = np.indices((height, width))
    a, b, c = rng.randint(0, 2), rng.randint(0, 2), rng.randint(1, 4)
    if rng.random() < 0.2:
        return np.random.default_rng(rng.getrandbits(32)).integers(low, high + 1, (height, width))
    return low + (a * x + b * y) // c % (high - low + 1)


def random_program(seed: int) -> Program:
    """A program from a seed."""
    rng = Random(seed)
    width, height = rng.randint(1, 7), rng.randint(1, 7)
    grid = (height, width)
    kernels = [random_kernel(rng, n) for n in range(rng.randint(0, 3))]
    placement = _stripes(rng, height, width, -1, len(kernels) - 1).astype(np.int16)
    bound = [np.full((*grid, QUEUES), -1, np.int8) for _ in range(2)]
    for number, kernel in enumerate(kernels):
        for table, queues in zip(bound, (kernel.in_queues, kernel.out_queues), strict=True):
            for queue in queues:
                colours = _stripes(rng, height, width, -1, rng.choice([-1, 1, COLOURS - 1]))
                table[..., queue] = np.where(placement == number, colours, table[..., queue])
    table = list(dict.fromkeys(_route(rng) for _ in range(rng.randint(0, 5))))
    routes = {}
    for colour in rng.sample(range(COLOURS), rng.randint(0, 4)):
        routes[colour] = _stripes(rng, height, width, 0, len(table)).astype(np.uint16)
    used = {int(i) for t in routes.values() for i in np.unique(t)} - {0}
    renumber = np.zeros(len(table) + 1, np.uint16)
    renumber[sorted(used)] = np.arange(1, len(used) + 1)
    routes = {c: renumber[t] for c, t in sorted(routes.items()) if t.any()}
    table = [table[i - 1] for i in sorted(used)]
    ports = {}
    for n in range(rng.randint(0, 3)):
        side, element = rng.choice([p for p in Port if p is not Port.RAMP]), rng.choice(ELEMENTS)
        length = width if side in (Port.N, Port.S) else height
        lanes = tuple(rng.sample(range(length), rng.randint(1, length)))
        packed = element.bits == 16 and rng.random() < 0.5
        shape = (rng.randint(1, 5), 2) if packed or rng.random() < 0.5 else ()
        lanes = tuple(sorted(lanes)) if rng.random() < 0.7 else lanes
        ports[f"p{n}"] = EdgePort(
            f"p{n}", rng.random() < 0.5, side, rng.randrange(COLOURS), lanes, element, shape, packed
        )
    return Program(
        "random", width, height, kernels, placement, *bound, table, routes, ports,
        _pe_values(rng, kernels, placement), {f"c{n}": n for n in rng.sample(range(COLOURS), 5)},
        {f"p_{n}": rng.randint(-9, 9) for n in range(rng.randint(0, 2))}, {}, rng.choice([None, "wse3"]),
    )  # fmt: skip


def _pe_values(rng: Random, kernels: list[Kernel], placement: np.ndarray) -> dict[str, np.ndarray]:
    """Values of some scalars; PEs whose kernel has no such scalar keep 0."""
    result: dict[str, np.ndarray] = {}
    scalars = {n for k in kernels for n, s in k.symbols.items() if s.shape == () and s.role == "data"}
    for name in sorted(scalars):
        if rng.random() < 0.5:
            continue
        values = np.zeros(placement.shape, np.uint32)
        for number, kernel in enumerate(kernels):
            symbol = kernel.symbols.get(name)
            mask = placement == number
            if symbol is None or symbol.shape != () or symbol.role != "data" or not mask.any():
                continue
            y, x = np.indices(placement.shape)
            linear = rng.randint(0, 3) * x + rng.randint(0, 3) * y + rng.randint(0, 5)
            anyhow = np.array([_bits(rng, symbol.element) for _ in range(placement.size)]).reshape(
                placement.shape
            )
            kind = linear if symbol.element.is_integer and rng.random() < 0.6 else anyhow
            values[mask] = kind[mask]
        result[name] = values
    placed = {n for i, k in enumerate(kernels) for n in k.symbols if (placement == i).any()}
    return {name: values for name, values in result.items() if name in placed}
