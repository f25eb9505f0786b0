"""The whole state of a running wafer: a handful of named flat arrays that compiled code reads and writes.

Records (NumPy structured types) keep what is used together in one cache line. Times are cycles, int64;
NEVER means "not known yet, or not at all". Nothing in here computes; graph.py and load.py fill the arrays.
"""

from __future__ import annotations

import numpy as np

NEVER = np.int64(1) << np.int64(62)

# --- what is fixed for a run ---

MACHINE = np.dtype(
    [
        ("pes", "i8"),
        # vector contexts per PE: the synchronous one and those of the microthreads in use
        ("contexts", "i8"),
        ("first_arbiter", "i8"),  # work items: PEs, then stream channels, then arbiters, then host lanes
        ("first_channel", "i8"),
        ("first_source", "i8"),
        ("fp_latency", "i8"),
        ("writeback", "i8"),
        ("branch_not_taken", "i8"),
        ("branch_taken", "i8"),
        ("accumulators", "i8"),
        ("bytes_per_cycle", "i8"),
        ("banks", "i8"),
        ("stride", "i8"),  # bytes of SRAM kept per PE
        ("strict", "i8"),
        ("descriptors", "i8"),  # descriptor registers kept per PE
        ("slots", "i8"),  # task slots kept per PE
        ("livelock", "i8"),
    ],
    align=True,
)

# One decoded code word; `op` is the opcode of isa/instructions.py, 0 = illegal, -1 = behind the end of the
# code.
CODE = np.dtype(
    [
        ("op", "i2"),
        ("rd", "u1"),
        ("ra", "u1"),
        ("rb", "u1"),
        ("t", "u1"),
        ("s", "u1"),
        ("words", "u1"),
        ("scalar", "u1"),
        ("advance_d", "u1"),
        ("advance_a", "u1"),
        ("advance_b", "u1"),
        ("asynchronous", "u1"),
        ("thread", "u1"),
        ("priority", "u1"),
        ("completion", "u1"),
        ("task", "u1"),
        ("queue", "u1"),
        ("group", "u1"),  # weights per scale, of vdeq
        ("vector", "u1"),
        ("sources", "u1"),
        ("to_register", "u1"),
        ("imm", "i4"),  # immediate, distance, displacement, address, shift, trap code, or bits of li32
        ("latency", "i4"),  # cycles until the result of a scalar instruction is ready
        ("lead", "i4"),  # vector: cycles from dispatch to the first group
        ("per_cycle", "i4"),  # vector: elements per cycle, at least 1
        ("per_element", "i4"),  # vector: cycles per element, at least 1
        ("word", "u4"),
    ],
    align=True,
)

KERNEL = np.dtype(
    [
        ("code", "i4"),  # index of its first word in `code`
        ("code_words", "i4"),  # one more entry follows them: the end of the code
        ("data_bytes", "i4"),
        ("first_task", "i4"),  # index into `tasks`; slots stand in order of task id
        ("n_tasks", "i4"),
        ("control_queues", "i4"),  # mask of output queues that may send control wavelets
        ("data_queues", "i4"),  # mask of input queues that belong to a data task
    ],
    align=True,
)

TASK = np.dtype(
    [
        ("id", "i1"),
        ("kind", "i1"),
        ("queue", "i1"),
        ("priority", "i1"),
        ("entry", "i1"),
        ("blocked", "i1"),
        ("pc", "i4"),
    ],
    align=True,
)

# --- the fabric ---

# A run of stages that only one colour uses and where nothing can change: one FIFO. Entry of wavelet i >=
# exit of wavelet i - capacity + reverse; exit >= entry + latency (docs/engine.md says why that is exact).
PIPE = np.dtype(
    [
        ("base", "i8"),  # first slot in ring_*
        ("capacity", "i4"),
        ("latency", "i4"),
        ("reverse", "i4"),
        ("count", "i4"),  # wavelets inside
        ("head", "i4"),  # slot of the next entry
        ("tail", "i4"),  # slot of the next exit
        ("consumer", "i4"),  # work item, -1 = none
        ("producer", "i4"),
        ("consumer_waits", "u1"),
        ("producer_waits", "u1"),
        ("to_host", "u1"),
        ("last_stage", "i4"),  # stage index of its end, in Graph
        ("entered", "i8"),  # wavelets so far
        ("free", "i8"),  # first cycle in which the next wavelet may leave: one per cycle
    ],
    align=True,
)

CHANNEL = np.dtype(
    [
        ("route", "i4"),
        ("router", "i4"),
        ("colour", "i1"),
        ("position", "i1"),
        ("arbiter", "i4"),  # -1: a stream channel
        ("free", "i8"),  # stream: first cycle in which the next wavelet may leave
    ],
    align=True,
)

ROUTE = np.dtype(
    [("positions", "i1"), ("ring", "i1"), ("pop", "i1"), ("inputs", "u1", (4,)), ("outputs", "u1", (4,))],
    align=True,
)

# The latest burst of wavelets of one channel over a link that it shares: [first, last] cycles, last =
# NEVER_YET before any.
WATCH = np.dtype([("link", "i8"), ("first", "i8"), ("last", "i8")], align=True)
NEVER_YET = -(np.int64(1) << np.int64(60))

ARBITER = np.dtype([("first", "i4"), ("count", "i4"), ("free", "i8"), ("last", "i2", (5,))], align=True)

# A lane of an input edge port: words of `source_word` still to send.
SOURCE = np.dtype([("next", "i8"), ("stop", "i8"), ("free", "i8"), ("pipe", "i4")], align=True)

# Known total costs of memory-only instructions: same shapes and same addresses modulo one round of the
# banks cost the same.
COST_ENTRIES = 1 << 12
COST_KEY = 32  # fields of the key; then cycles (low, high), bank cycles (low, high)
COST_FIELDS = COST_KEY + 4

# --- processing elements ---

PE = np.dtype(
    [
        ("clock", "i8"),  # first cycle in which the engine can issue
        ("accounted", "i8"),  # cycles before it are in the counters
        ("branch_ready", "i8"),  # the task's next instruction waits for a branch until then
        ("task_free", "i8"),  # first cycle in which a task may be picked
        ("instructions", "i8"),
        ("last_issue", "i8"),
        # first cycle in which the task's next instruction could issue, registers and queues apart
        ("since", "i8"),
        ("pc", "i4"),  # word within the kernel
        ("target", "i8"),  # where the last instruction led, inside the code or not
        ("kernel", "i4"),
        ("pending", "u4"),  # local task slots
        ("blocked", "u4"),
        ("threads", "u2"),  # mask of active microthreads
        ("in_busy", "u1"),  # queues used by operations under way
        ("out_busy", "u1"),
        ("arrivals", "u1"),  # input queues whose arrivals can start a task
        ("task", "i1"),  # running task slot, -1 = none
        ("priority", "i1"),
        ("last_thread", "i1"),
        ("synchronous", "u1"),  # a synchronous vector instruction holds the engine
        ("stopped", "u1"),
        ("done", "u1"),
        ("last_bank", "i4"),  # bank cycles of the last group, for a run cut within it
    ],
    align=True,
)

# A vector instruction under way.
VECTOR = np.dtype(
    [
        ("start", "i8"),  # first group issues here or later
        ("since", "i8"),  # first cycle in which the next group could issue, the fabric apart
        ("op", "i2"),
        ("t", "u1"),
        ("s", "u1"),
        ("priority", "u1"),
        ("completion", "u1"),
        ("task", "u1"),
        ("fabric", "u1"),  # some operand is in the fabric or a FIFO
        ("rd", "u1"),
        ("group_weights", "u1"),  # vdeq
        ("accumulates", "u1"),  # the destination is read, too
        ("plain", "u1"),  # no group can cost more than its rate
        ("streams", "u1"),  # the fast path of stream.py applies
        ("guarded", "u1"),  # addresses must be checked group by group
        ("pc", "i4"),
        ("elements", "i4"),
        ("left", "i4"),
        ("group", "i4"),  # elements per group
        ("per_cycle", "i4"),
        ("per_element", "i4"),
        ("resident", "i4"),  # accumulators that stay in the engine, 0 = none
        ("index", "i4"),  # elements sent so far, for unpacked wavelets
    ],
    align=True,
)

NO_OPERAND, MEMORY, FABRIC_IN, FABRIC_OUT, FIFO, CONSTANT = range(6)

# An operand of a vector instruction under way: an address generator of four dimensions, or a queue.
OPERAND = np.dtype(
    [
        ("kind", "u1"),
        ("bytes", "u1"),
        ("control", "u1"),
        ("per_wavelet", "u1"),
        ("queue", "u1"),
        ("repeat", "u1"),  # the innermost dimension of stride 0, of resident accumulators
        ("pipe", "i4"),
        ("value", "u4"),  # of a register
        ("base", "i4"),
        ("address", "i4"),
        ("extent0", "i4"),
        ("extent1", "i4"),
        ("extent2", "i4"),
        ("extent3", "i4"),
        ("stride0", "i4"),
        ("stride1", "i4"),
        ("stride2", "i4"),
        ("stride3", "i4"),
        ("at0", "i4"),
        ("at1", "i4"),
        ("at2", "i4"),
        ("at3", "i4"),
    ],
    align=True,
)

RUN = np.dtype(
    [
        ("now", "i8"),
        ("limit", "i8"),
        ("last", "i8"),  # last cycle in which something happened
        ("progress", "i8"),  # last cycle in which a PE issued or the host received
        ("budget", "i8"),  # work items until the next return to Python
        ("work", "i8"),  # entries of `work`
        ("events", "i8"),  # entries of the calendar
        ("sunk", "i8"),  # entries of `sunk_*`
        ("crossings", "i8"),  # entries of `crossing_*`
        ("cut", "i8"),  # something stopped at the limit
        ("fault_cycle", "i8"),
        ("fault_pe", "i8"),
        ("fault_order", "i8"),  # of faults of one router in one cycle
        ("fault_code", "i4"),
        ("fault_pc", "i8"),
        ("fault_argument", "i8"),
        ("livelocked", "i4"),
        ("trouble", "i4"),  # a broken assumption of the engine itself
    ],
    align=True,
)


# Everything compiled code needs: name -> (element, inner shape). All arrays are dense; n = PEs (H * W,
# row-major).
ARRAYS: dict[str, tuple[np.dtype, tuple[int, ...]]] = {
    name: (np.dtype(element), inner)
    for name, element, inner in (
        ("machine", MACHINE, ()),  # (1,)
        ("run", RUN, ()),  # (1,)
        ("code", CODE, ()),  # (words,)
        ("kernels", KERNEL, ()),
        ("tasks", TASK, ()),
        # (kernels, 40): slot of a task id, then of the data task of each input queue; -1 = none
        ("task_slot", "i1", (40,)),
        ("sram8", "u1", ()),  # (n * stride,), and the same bytes as 16-bit and 32-bit words:
        ("sram16", "u2", ()),
        ("sram32", "u4", ()),
        ("written", "?", ()),  # (n * stride,) with --strict, else empty
        ("pes", PE, ()),  # (n,)
        ("registers", "u4", (16,)),  # (n, 16)
        ("ready", "i8", (16,)),  # (n, 16): first cycle in which a register can be used
        ("descriptors", "u2", (10,)),  # (n * descriptors, 10): flags, base, extents, strides
        ("descriptor_slot", "i1", ()),  # (16,)
        ("task_time", "i8", ()),  # (n * slots,): cycle of the last activation or unblock
        ("counters", "i8", (8,)),  # (n, 8)
        ("recent", "u2", (8,)),  # (n, 8): the last instructions
        ("pe_in", "i4", (8,)),  # (n, 8): pipe of each input queue, -1 = none
        ("pe_out", "i4", (8,)),
        ("vectors", VECTOR, ()),  # (n * contexts,)
        ("operands", OPERAND, ()),  # (n * contexts * 3,)
        ("costs", "i4", (COST_FIELDS,)),  # (COST_ENTRIES, COST_FIELDS): known costs of memory operands
        ("pipes", PIPE, ()),
        ("ring_value", "u4", ()),  # (slots,)
        ("ring_time", "i8", ()),  # (slots,) occupied: 2 * cycle of visibility + control; free: cycle of reuse
        ("channels", CHANNEL, ()),
        ("channel_in", "i4", (5,)),  # (channels, 5): pipe at each input port
        ("channel_out", "i4", (5,)),
        ("channel_watch", "i4", (5,)),  # (channels, 5): watch of each output link, -1 = not shared
        ("watches", WATCH, ()),
        ("crossing_watch", "i4", ()),  # (capacity,): finished bursts
        ("crossing_first", "i8", ()),
        ("crossing_last", "i8", ()),
        ("routes", ROUTE, ()),
        ("arbiters", ARBITER, ()),
        ("sources", SOURCE, ()),  # (lanes,)
        ("source_word", "u4", ()),
        ("source_control", "?", ()),
        ("source_time", "i8", ()),  # first cycle in which the word can be on the edge link
        ("sunk_word", "u4", ()),  # (capacity,): what reached the host, in order of processing
        ("sunk_time", "i8", ()),  # (capacity,): 2 * cycle + control
        ("sunk_lane", "i4", ()),  # (capacity,)
        ("queued", "?", ()),  # (items,): in `work`
        ("event", "i8", ()),  # (items,): earliest calendar entry
        ("work", "i4", ()),  # (items,): a stack
        ("heap_time", "i8", ()),  # (capacity,)
        ("heap_item", "i4", ()),
    )
}
