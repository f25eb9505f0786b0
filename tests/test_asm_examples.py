"""Every tests/asm/*.loom is a test: `ok_` files assemble, `err_` files give exactly the findings they name.

An expectation is a comment `;! error[range] text` (or `warning[...]`) on the line it is about, or on a line
of its own under it; `text` must occur in the finding's text, and what follows a ` | ` in its notes or its
help. `;! params rows=1` sets parameters; `;! machine tiny` asks whether the program fits this machine, too.
"""

import re
from pathlib import Path

import pytest
from waferloom.fabric.fit import check_fit
from waferloom.fabric.spec import machine
from waferloom.isa.assembler import assemble_file
from waferloom.isa.diagnostics import AssemblyError, Diagnostic
from waferloom.isa.errors import CATEGORIES
from waferloom.isa.wellformed import violations

FILES = sorted((Path(__file__).parent / "asm").glob("*.loom"))
EXPECTED = re.compile(r";!\s*(error|warning)\[(\w+)\]\s*(.*?)\s*(?=;!|$)")


def expectations(text: str) -> list[tuple[int, str, str, str]]:
    """(line, severity, category, text) of every expectation in a file."""
    found, line = [], 1
    for number, content in enumerate(text.split("\n"), 1):
        if not content.lstrip().startswith(";!"):
            line = number
        found += [(line, *match) for match in EXPECTED.findall(content)]
    return found


def parameters(text: str) -> dict[str, int]:
    found = re.findall(r"^;! params (.*)$", text, re.MULTILINE)
    return {name: int(value) for row in found for name, value in re.findall(r"(\w+)=(-?\d+)", row)}


def assembled(path: Path, text: str) -> tuple[str, list[Diagnostic]]:
    """`ok` or `err`, and the findings."""
    try:
        assembly = assemble_file(path, parameters=parameters(text))
        for name in re.findall(r"^;! machine (\w+)$", text, re.MULTILINE):
            check_fit(machine(name), assembly.program)
    except AssemblyError as error:
        return "err", error.diagnostics
    assert not list(violations(assembly.program))
    return "ok", assembly.diagnostics.warnings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    text = path.read_text("utf-8")
    expected = expectations(text)
    ends, findings = assembled(path, text)
    assert path.stem.startswith(ends), findings
    missing = list(expected)
    unexpected = []
    for finding in findings:
        line = finding.location.line if finding.location else 0
        for item in missing:
            said, _, more = item[3].partition(" | ")
            others = [*(note for note, _ in finding.notes), finding.help or ""]
            if (
                item[:3] == (line, finding.severity, finding.category)
                and said in finding.text
                and any(more in other for other in others)
            ):
                missing.remove(item)
                break
        else:
            unexpected.append(finding.first_line(path.name))
    if unexpected or missing:
        pytest.fail(f"not named in the file: {unexpected}\nnamed but not found: {missing}", pytrace=False)


def test_every_category_has_an_example() -> None:
    in_play = {"syntax", "name", "range", "type", "resource", "route", "capacity"}
    seen = {category for path in FILES for _, _, category, _ in expectations(path.read_text("utf-8"))}
    assert in_play <= seen
    assert seen <= set(CATEGORIES)
