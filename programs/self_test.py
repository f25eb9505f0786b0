"""The tiny program with which `waferloom doctor` compares the two engines."""

from __future__ import annotations

from ..isa.program import Program

__all__ = ["SOURCE", "program"]

# Vectors, a task, a microthread with completion, routes both ways, a branch: a little of everything.
SOURCE = """\
.colour east, west
.kernel left
.queues
  in back
  out there
.data
  a: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]
  got: f32[8]
.code
task start entry
  vmov.f16 there, a @0 then activate take
  end
task take
  vmov.f32 got, back
  done
  end
.kernel right
.queues
  in come
  out go
.data
  half: f16[8]
  sum: f32[8]
  k: f16 = 2
.code
task start entry
  vmov.f16 half, come
  ld.f16 r1, k
  li r2, 3
again:
  vmac.f32.f16 sum, half, r1
  addi r2, r2, -1
  li r3, 0
  bne r2, r3, again
  vmov.f32 go, sum
  done
  end
.layout
  grid 2, 1
  place left at (0, 0) { there = east, back = west }
  place right at (1, 0) { come = east, go = west }
  route east at (0, 0): RAMP -> E
  route east at (1, 0): W -> RAMP
  route west at (1, 0): RAMP -> W
  route west at (0, 0): E -> RAMP
"""


def program() -> Program:
    """The self-test, assembled: `got` of the left PE becomes 6 times `a`."""
    from ..isa.assembler import assemble_text

    return assemble_text(SOURCE, name="self-test")
