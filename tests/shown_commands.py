"""Commands shown in a Markdown page: found, run in a copy of the project's visible files, and compared.

A page shows commands in blocks marked `console`: a line `$ command` (or more of them), each followed by what
it prints, stdout and stderr together. Without output only its success counts; a line `...` stands for any
lines. What depends on the host (seconds, rates) is masked on both sides. `pycon` blocks are doctests, and
`python` blocks run as they stand; those of a page share their names.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
SHOWN = ("docs", "programs", "tests", "README.md")  # what commands may name
BAD_ENDS = re.compile(r"error\[|^hang at|^limit|mismatch", re.M)
HOST = (
    (re.compile(r"^host: .*$", re.M), "host: ..."),
    (re.compile(r"\b\d[\d,.]*(e[+-]?\d+)? (s|ms|us|seconds|MiB|GiB)\b"), "# \\2"),
    (re.compile(r"[\d.]+(e[+-]?\d+)? (PE-cycles|weights|multiply-adds)/s"), "# \\2/s"),
    (re.compile(r"[^\s\"]*site-packages[\\/]waferloom[\\/]"), ""),
    (re.compile(r"^(WARNING: |\[notice\]).*\n|^\n(?=\[notice\])", re.M), ""),  # what pip says on this host
    (re.compile(r"[ \t]+$", re.M), ""),
)


@dataclass(frozen=True)
class Command:
    """A command, the lines it is said to print, and where it stands."""

    text: str
    output: str
    place: str

    @property
    def makes_environment(self) -> bool:
        return "-m venv" in self.text


INCLUDED = re.compile(r"^<!-- include (\S+) -->\n```\n(.*?)```$", re.M | re.S)


def blocks(page: Path, kind: str) -> list[tuple[str, int]]:
    """(text, line number) of every block of a kind."""
    text = page.read_text("utf-8")
    return [
        (m.group(2), text.count("\n", 0, m.start(2)) + 1) for m in BLOCK.finditer(text) if m.group(1) == kind
    ]


def commands(page: Path) -> list[Command]:
    """Every command of a page, in order."""
    found = []
    for text, first in blocks(page, "console"):
        assert text.startswith("$ "), f"{page.name}:{first}: a console block starts with `$ `"
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = f"{command}\n{more}"
            line = first + text[: text.index(part)].count("\n")
            found.append(Command(command, output, f"{page.name}:{line}"))
    return found


def masked(text: str) -> str:
    """Text without what depends on the host."""
    for pattern, instead in HOST:
        text = pattern.sub(instead, text)
    return text.strip("\n")


def differs(expected: str, got: str) -> bool:
    """Whether output is not what a page shows."""
    chunks = re.split(r"^\.\.\.\n", masked(expected) + "\n", flags=re.M)
    pattern = r"(?:.*\n)*".join(map(re.escape, chunks))
    return re.fullmatch(pattern, masked(got) + "\n") is None


def folder_of_links(where: Path) -> Path:
    """A folder in which the project's files can be named as from its top, and files can be written."""
    for name in SHOWN:
        (where / name).symlink_to(ROOT / name)
    return where


def run(command: Command, where: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, with the tested waferloom first on the path."""
    bin_folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", "")]),
        "PYTHONIOENCODING": "utf-8",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        ["bash", "-c", command.text],
        cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )  # fmt: skip


def check(command: Command, where: Path) -> None:
    """Run a command and compare."""
    done = run(command, where)
    if command.output:
        assert not differs(command.output, done.stdout), (
            f"{command.place}: `{command.text}` prints\n{masked(done.stdout)}\n--- the page shows\n"
            f"{masked(command.output)}"
        )
    if not BAD_ENDS.search(command.output):
        assert done.returncode == 0, f"{command.place}: `{command.text}`: {done.stdout}"


def check_python(page: Path, where: Path) -> int:
    """Run the `python` and `pycon` blocks of a page in order, with one set of names; how many there were."""
    found = [(line, "python", text) for text, line in blocks(page, "python")]
    found += [(line, "pycon", text) for text, line in blocks(page, "pycon")]
    names: dict[str, object] = {}
    before = Path.cwd()
    os.chdir(where)
    try:
        for line, kind, text in sorted(found):
            if kind == "python":
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)
                continue
            test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), line - 1)
            said: list[str] = []
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, out=said.append, clear_globs=False)
            names = test.globs
            assert not runner.failures, "".join(said)
    finally:
        os.chdir(before)
    return len(found)
