"""Programs of one PE around a few lines of code and data, for tests of the assembler."""

import pytest
from waferloom.isa import AssemblyError, assemble_text
from waferloom.isa.instructions import decode

FRAME = """.kernel k
.queues
  in west
  out east
.data
{data}
.code
task start entry
{code}
  end
.layout
  grid 1, 1
  place k at (0, 0) {{ west = none, east = none }}
"""


def program(code: str = "", data: str = "  z: f32[4]", **parameters: int):
    return assemble_text(FRAME.format(data=data, code=code), **parameters)


def kernel(code: str = "", data: str = "  z: f32[4]"):
    return program(code, data).kernels[0]


def findings(code: str = "", data: str = "  z: f32[4]") -> list[str]:
    """First lines of all errors, without file and severity."""
    with pytest.raises(AssemblyError) as caught:
        program(code, data)
    return [
        f"{d.location.line}:{d.location.column}: {d.category}: {d.text}" for d in caught.value.diagnostics
    ]


def decoded(k) -> list:
    found, pc = [], 0
    while pc < len(k.code):
        found.append(decode(k.code, pc))
        pc += found[-1].words
    return found
