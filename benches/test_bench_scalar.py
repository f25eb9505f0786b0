"""Bench (c): scalar code on 64 x 64 PEs. Aim: at least 50 million instructions per second of one core."""

import time

from report import figure
from waferloom.fabric import Wafer, machine
from waferloom.isa import assemble

SIDE, TURNS = 64, 1000
CYCLES = 13004
# A loop of 8 instructions: load, add, multiply, store, address arithmetic, a branch.
SOURCE = """\
.param side = 64, turns = 1000
.kernel pe
.data
  v: i32[16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
  sum: i32 export = 0
.code
task start entry
  li     r1, 0
  li     r2, turns
  li     r3, 0
  li     r6, v
loop:
  andi   r4, r2, 60
  add    r4, r4, r6
  ld.i32 r5, [r4]
  add    r1, r1, r5
  muli   r1, r1, 3
  st.i32 r1, [r4]
  addi   r2, r2, -1
  bne    r2, r3, loop
  st.i32 r1, sum
  done
  end
.layout
  grid side, side
  place pe at (*, *) {}
"""


def golden(turns: int) -> int:
    """`sum`, computed here."""
    v, total = list(range(1, 17)), 0
    for r2 in range(turns, 0, -1):
        total = (total + v[(r2 & 60) // 4]) * 3 % 2**32
        v[(r2 & 60) // 4] = total
    return total - 2**32 if total >> 31 else total


def test_scalar(benchmark):
    program = assemble(SOURCE, side=SIDE, turns=TURNS)
    core = []

    def fresh():
        return (Wafer(machine("wse3"), program),), {}

    def run(wafer):
        began = time.process_time()
        result = wafer.run()
        core.append(time.process_time() - began)
        assert (wafer.read("sum") == golden(TURNS)).all()
        return result

    Wafer(machine("wse3"), program).run()  # compiles, or reads the cache
    result = benchmark.pedantic(run, setup=fresh, rounds=3)
    assert result.end == "finished"
    assert result.cycles == CYCLES
    instructions = int(result.outcome.instructions.sum())
    assert instructions == SIDE * SIDE * (4 + 8 * TURNS + 3)
    name = f"scalar code, {SIDE} x {SIDE} PEs, {instructions:,} instructions, {CYCLES:,} cycles"
    figure(name, "host speed", instructions / min(core), "instructions/s of one core", 50e6, at_most=False)
