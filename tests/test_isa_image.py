"""The image file: nothing is lost, equal programs give equal bytes, anything else is one clear error."""

import copy
import json
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from waferloom.isa.element_types import ElementType
from waferloom.isa.errors import Rejected
from waferloom.isa.image import KEY, ImageError, load_image, program_digest, save_image
from waferloom.isa.program import (
    EdgePort,
    Kernel,
    Location,
    Port,
    Program,
    Route,
    RoutePosition,
    Symbol,
    Task,
    TaskKind,
)
from waferloom.isa.records import differences, programs_equal


def small_program(width: int = 3, height: int = 2) -> Program:
    """A program with something in every field."""
    rng = np.random.default_rng(1)
    grid = (height, width)
    here = Location("tile.loom", 3, 5, 7)
    kernel = Kernel(
        "tile",
        code=np.array([0x98000000, 0xFFFFFFFF, 0], np.uint32),
        data=np.arange(40, dtype=np.uint8),
        initialised=np.arange(40) % 3 == 0,
        symbols={
            "w": Symbol("w", ElementType.F16, (2, 4), 0, 16, export=True, location=here),
            "q": Symbol("q", ElementType.Q4, (32,), 16, 18, group=32),
            "": Symbol("", ElementType.I16, (), 34, 2, role="descriptor"),
        },
        tasks={
            0: Task(0, "start", TaskKind.LOCAL, 0, entry=True, location=here),
            7: Task(7, "on_x", TaskKind.DATA, 2, queue=3, priority=1, blocked=True),
        },
        labels={"start": 0, "loop": 3},
        locations=[here, None, Location("other.loom", 1, 1)],
        in_queues={3: "x"},
        out_queues={0: "y", 7: "ä\n"},
        location=here,
    )
    hollow = Kernel("hollow", np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.zeros(0, bool), {}, {})
    switched = Route(
        (
            RoutePosition(frozenset({Port.N, Port.RAMP}), frozenset({Port.S})),
            RoutePosition(frozenset({Port.W}), frozenset()),
        ),
        ring=True, pop=True, swap=True, merge=True,
    )  # fmt: skip
    return Program(
        "small",
        width,
        height,
        [kernel, hollow],
        placement=rng.integers(-1, 2, grid).astype(np.int16),
        in_colour=rng.integers(-1, 24, (*grid, 8)).astype(np.int8),
        out_colour=rng.integers(-1, 24, (*grid, 8)).astype(np.int8),
        route_table=[switched, Route((RoutePosition(frozenset({Port.E}), frozenset({Port.RAMP})),))],
        routes={c: rng.integers(0, 3, grid).astype(np.uint16) for c in (0, 2, 11, 23)},
        edge_ports={"x": EdgePort("x", False, Port.N, 2, (0, 1), ElementType.F32, (4,), True, here)},
        pe_values={"rank": np.arange(width * height, dtype=np.uint32).reshape(grid) << 20},
        colour_names={"x": 2, "y": 3},
        parameters={"rows": 2, "below": -1},
        sources={"tile.loom": "; text\n"},
        machine="wse3",
    )


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "small.image"
    save_image(small_program(), path)
    return path


def test_nothing_is_lost(saved):
    loaded = load_image(saved)
    assert list(differences(loaded, small_program())) == []
    assert programs_equal(loaded, small_program())
    assert programs_equal(load_image(saved), loaded)


def test_equal_programs_give_equal_bytes(saved, tmp_path):
    other = small_program()
    for table in (other.routes, other.kernels[0].symbols, other.colour_names, other.kernels[0].tasks):
        for key in list(table)[:-1]:
            table[key] = table.pop(key)  # another order of insertion
    save_image(other, tmp_path / "other.image")
    save_image(load_image(saved), tmp_path / "again.image")
    for name in ("other.image", "again.image"):
        assert (tmp_path / name).read_bytes() == saved.read_bytes()


def test_other_tools_can_read_the_tensors(saved):
    with safe_open(saved, "np") as image:
        assert image.get_tensor("kernels.0.code").tolist() == [0x98000000, 0xFFFFFFFF, 0]
        assert image.get_tensor("routes.11").dtype == np.uint8  # narrow where the values allow
        assert json.loads(image.metadata()[KEY])["digest"] == program_digest(small_program())


def test_wide_tables_stay_wide(tmp_path):
    program = small_program()
    program.route_table = [program.route_table[i % 2] for i in range(300)]
    program.routes = {0: np.array([[0, 1, 300], [299, 255, 256]], np.uint16)}
    save_image(program, tmp_path / "wide.image")
    assert programs_equal(load_image(tmp_path / "wide.image"), program)


def test_the_digest_is_that_of_the_meaning():
    program, moved = small_program(), small_program()
    moved.sources = {}
    moved.name = "elsewhere"
    moved.kernels[0].locations = []
    moved.kernels[0].symbols["w"].location = None
    assert program_digest(moved) == program_digest(program)
    assert programs_equal(moved, program, provenance=False)
    assert not programs_equal(moved, program)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda p: p.kernels[0].code.__setitem__(1, 5), "kernels.0.code[1]: 5 / 4294967295"),
        (lambda p: setattr(p.kernels[0].tasks[7], "queue", 2), "kernels.0.tasks.7.queue: 2 / 3"),
        (lambda p: p.edge_ports.clear(), "edge_ports.x: only in the second"),
        (lambda p: p.route_table.pop(), "route_table: 1 items / 2 items"),
        (lambda p: setattr(p, "placement", p.placement.astype(int)), "placement: int64[2, 3] / int16[2, 3]"),
        (lambda p: setattr(p, "machine", None), "machine: None / 'wse3'"),
    ],
)
def test_differences_name_the_place(change, key):
    changed = small_program()
    change(changed)
    assert list(differences(changed, small_program())) == [key]
    if "int64" not in key:
        assert program_digest(changed) != program_digest(small_program())


def test_a_full_wse3_grid_is_compact_and_quick(tmp_path):
    program = small_program(755, 1170)
    program.routes = dict.fromkeys(range(24), program.routes[0])
    start = time.perf_counter()
    save_image(program, tmp_path / "big.image")
    loaded = load_image(tmp_path / "big.image")
    assert time.perf_counter() - start < 5  # about 0.3 s on an idle core
    assert (tmp_path / "big.image").stat().st_size < 60_000_000
    assert programs_equal(loaded, program)


# --- damaged and foreign files ---


def refused(path) -> str:
    """The one-sentence message with which a file is refused."""
    with pytest.raises(ImageError) as caught:
        load_image(path)
    error = caught.value
    assert isinstance(error, Rejected)
    assert (error.category, error.exit_code) == ("format", 3)
    assert error.message.startswith(f"{path}: error[format]: ")
    assert "\n" not in error.message
    return error.message.removeprefix(f"{path}: error[format]: ")


def rewritten(path, tensors=None, body=None):
    """Write the image again with changed tensors and a changed JSON body, checksum untouched."""
    with safe_open(path, "np") as image:
        arrays = {name: image.get_tensor(name) for name in image.keys()}
        tree = json.loads(image.metadata()[KEY])
    if tensors:
        tensors(arrays)
    if body:
        body(tree)
    save_file(arrays, path, {KEY: json.dumps(tree)})
    return path


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for length in [*range(20), *range(20, len(whole), 97), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        refused(saved)
    saved.write_bytes(whole + b"\0")
    assert "not a valid safetensors file" in refused(saved)


def test_every_flipped_bit_is_refused(saved):
    whole = saved.read_bytes()
    for position in [*range(16), *range(16, len(whole), 41), *range(len(whole) - 16, len(whole))]:
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        saved.write_bytes(broken)
        try:
            loaded = load_image(saved)
        except ImageError:
            continue
        assert programs_equal(loaded, small_program())  # a bit of JSON white space or of a tensor's order


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "truncated or not an image"),
        (b"GGUF" + bytes(60), "truncated or not an image"),
        ((2).to_bytes(8, "little") + b"[]", "not a valid safetensors file"),
        ((9).to_bytes(8, "little") + b'{"a":1}}}', "not a valid safetensors file"),
        ((13).to_bytes(8, "little") + b'{"a":1,"a":2}', "key `a` occurs twice"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "not a valid safetensors file"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "not a valid safetensors file"),
    ],
)
def test_other_files_are_refused(tmp_path, content, rule):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert rule in refused(path)


def test_missing_file_and_directory(tmp_path):
    assert "cannot be read: No such file" in refused(tmp_path / "nowhere")
    assert "cannot be read: Is a directory" in refused(tmp_path)


def test_a_weight_file_is_no_image(tmp_path):
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "weights", {"format": "pt"})
    assert "without the metadata key `waferloom`" in refused(tmp_path / "weights")
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "weights", {KEY: "nonsense"})
    assert "metadata `waferloom`: not JSON" in refused(tmp_path / "weights")
    save_file({}, tmp_path / "weights", {KEY: "[" * 100_000})
    assert "metadata `waferloom`: not JSON: nested too deeply" in refused(tmp_path / "weights")
    save_file({}, tmp_path / "weights", {KEY: '{"schema": 1, "schema": 1}'})
    assert "key `schema` occurs twice" in refused(tmp_path / "weights")
    save_file({}, tmp_path / "weights", {KEY: "[1]"})
    assert "not a JSON object" in refused(tmp_path / "weights")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("placement"), "key `placement`: the tensor is missing"),
        (lambda t: t.update(extra=np.zeros(2)), "tensor `extra`: the program has no such tensor"),
        (
            lambda t: t.update(placement=t["placement"].astype(np.int32)),
            "tensor `placement`: elements are int32, not int16",
        ),
        (
            lambda t: t.update(placement=t["placement"][:, :2].copy()),
            "tensor `placement`: shape [2, 2] is not [2, 3]",
        ),
        (lambda t: t["placement"].fill(2), "tensor `placement`: holds 2, outside -1..1"),
        (lambda t: t["in_colour"].fill(24), "tensor `in_colour`: holds 24, outside -1..23"),
        (lambda t: t["routes.2"].fill(3), "tensor `routes.2`: holds 3, outside 0..2"),
        (
            lambda t: t.update({"routes.2": np.zeros((2, 3), np.int8)}),
            "tensor `routes.2`: elements are int8, not uint16",
        ),
        (
            lambda t: t.update({"kernels.0.code": np.zeros((), np.uint32)}),
            "tensor `kernels.0.code`: shape [] is not one dimension",
        ),
        (
            lambda t: t.update({"kernels.1.code": np.zeros(1, np.int64)}),
            "tensor `kernels.1.code`: elements are int64, not uint32",
        ),
        (
            lambda t: t.update({"kernels.0.initialised": np.zeros(3, bool)}),
            "tensor `kernels.0.initialised`: shape [3] is not [40]",
        ),
        (
            lambda t: t["kernels.0.code"].fill(0),
            "key `checksum`: the contents do not match it: the file was altered",
        ),
    ],
)
def test_wrong_tensors_are_refused(saved, change, message):
    assert refused(rewritten(saved, tensors=change)) == message


def with_header(path, change, pad: bytes = b"") -> None:
    """Change the safetensors header, leaving the tensors' bytes alone."""
    blob = path.read_bytes()
    end = 8 + int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:end])
    change(header)
    text = json.dumps(header).encode() + pad
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob[end:])


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["placement"].update(data_offsets=[0, 12]),  # overlap
        lambda h: h["placement"].update(shape=[2, 4]),  # size is not shape times type
        lambda h: h["placement"].update(shape=[-2, -3]),
        lambda h: h["placement"].update(shape=[2.5, 3]),
        lambda h: h["placement"].update(shape=[1 << 62, 1 << 62]),
        lambda h: h["placement"].update(data_offsets=h["placement"]["data_offsets"][::-1]),
        lambda h: h["placement"].update(data_offsets=[-12, 0]),
        lambda h: h["placement"].update(data_offsets=["0", "12"]),
        lambda h: h["placement"].update(data_offsets=[1 << 60, (1 << 60) + 12]),
        lambda h: h["placement"].update(dtype="I17"),
        lambda h: h["placement"].update(dtype="BF16"),  # no NumPy type
        lambda h: h["placement"].pop("dtype"),
        lambda h: h.update(placement=3),
        lambda h: h.pop("kernels.0.data"),  # a gap
        lambda h: h.update({"__metadata__": {}}),
        lambda h: h.update({"__metadata__": {KEY: 3}}),
        lambda h: h.pop("__metadata__"),
    ],
)
def test_malformed_headers_are_refused(saved, change):
    with_header(saved, change)
    refused(saved)


def test_a_padded_header_is_fine(saved):
    with_header(saved, lambda header: None, b" " * 13)
    assert programs_equal(load_image(saved), small_program())


def set_in(path: str, value):
    """A change of the JSON body: `value` at the dotted path."""

    def change(body):
        node = body
        *front, last = path.split(".")
        for part in front:
            node = node[int(part) if isinstance(node, list) else part]
        node[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("schema", 2), "key `schema`: version 2; this program reads version 1"),
        (set_in("schema", True), "key `schema`: version True; this program reads version 1"),
        (lambda b: b.pop("schema"), "key `schema`: version None; this program reads version 1"),
        (lambda b: b.pop("digest"), "key `digest`: the key is missing"),
        (set_in("other", 2), "key `other`: no such key"),
        (set_in("program", []), "key ``: [] is not an object"),
        (set_in("digest", "0"), "key `checksum`: the contents do not match it: the file was altered"),
        (set_in("program.name", "x"), "key `checksum`: the contents do not match it: the file was altered"),
        (set_in("program.name", 3), "key `name`: 3 is not a string"),
        (set_in("program.width", 1.5), "key `width`: 1.5 is not a whole number"),
        (set_in("program.width", True), "key `width`: True is not a whole number"),
        (set_in("program.width", 0), "key `width`: 0 is outside 1..32768"),
        (
            set_in("program.height", 10**30),
            "key `height`: 1000000000000000000000000000000 is outside 1..32768",
        ),
        (set_in("program.colour", 1), "key `colour`: no such key"),
        (lambda b: b["program"]["kernels"][0].pop("tasks"), "key `kernels.0.tasks`: the key is missing"),
        (set_in("program.kernels.0.code", "placement"), "tensor `kernels.0.code`: the tensor is missing"),
        (set_in("program.kernels.0.tasks.x", {}), "key `kernels.0.tasks.x`: the key is not a whole number"),
        (set_in("program.kernels.0.tasks.7.id", 8), "key `kernels.0.tasks.7.id`: 8 is not 7"),
        (
            set_in("program.kernels.0.tasks.7.kind", "SPARE"),
            "key `kernels.0.tasks.7.kind`: 'SPARE' is none of LOCAL, DATA, CONTROL",
        ),
        (set_in("program.kernels.0.tasks.7.queue", -1), "key `kernels.0.tasks.7.queue`: -1 is outside 0..7"),
        (set_in("program.kernels.0.tasks.7.pc", 4), "key `kernels.0.tasks.7.pc`: 4 is outside 0..3"),
        (set_in("program.kernels.0.labels.loop", -1), "key `kernels.0.labels.loop`: -1 is outside 0..3"),
        (
            set_in("program.kernels.0.locations", [None]),
            "key `kernels.0.locations`: 1 places for 3 words of code",
        ),
        (
            set_in("program.kernels.0.location", ["a", 1]),
            "key `kernels.0.location`: a location is [file, line, column, length]",
        ),
        (
            set_in("program.kernels.0.symbols.w.address", 26),
            "key `kernels.0.symbols.w`: 16 bytes at address 26 are outside 40 bytes of data",
        ),
        (
            set_in("program.route_table.0.positions", []),
            "key `route_table.0.positions`: 0 positions: 1..4 are possible",
        ),
        (
            set_in("program.edge_ports.x.side", "RAMP"),
            "key `edge_ports.x.side`: RAMP is not a side of the grid",
        ),
        (set_in("program.edge_ports.x.lanes", [0, 3]), "key `edge_ports.x.lanes`: 3 is outside 0..2"),
        (set_in("program.edge_ports.x.lanes", [1, 1]), "key `edge_ports.x.lanes`: a router occurs twice"),
        (set_in("program.colour_names.x", 24), "key `colour_names.x`: 24 is outside 0..23"),
    ],
)
def test_wrong_metadata_is_refused(saved, change, message):
    assert refused(rewritten(saved, body=change)) == message


def test_a_failed_save_leaves_nothing_behind(tmp_path, saved):
    before = saved.read_bytes()
    broken = copy.copy(small_program())
    broken.parameters = {"x": 0.5}  # type: ignore[dict-item]
    with pytest.raises(ImageError, match=r"key `parameters.x`: 0.5 is not a whole number"):
        save_image(broken, saved)
    broken = copy.copy(small_program())
    broken.machine = object()  # type: ignore[assignment]
    with pytest.raises(TypeError):
        save_image(broken, saved)
    assert saved.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["small.image"]
