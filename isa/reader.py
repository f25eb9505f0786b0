"""Reads `.loom` files: cuts text into statements, parses each, follows `.include`, nests blocks.

The result is one `Unit`: all statements of a program by section, in source order. A line that does not
parse costs one message; reading goes on with the next line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .diagnostics import Diagnostic, Diagnostics, Problem, Source, Span, did_you_mean
from .errors import Rejected
from .parser import parse
from .syntax import Definition, Directive, Head, If, Name, Node, Repeat

DIRECTIVES = (
    ".param", ".const", ".colour", ".include", ".machine", ".kernel", ".queues", ".data", ".code", ".layout"
)  # fmt: skip
_RULES = {"queues": "queue_line", "data": "data_line", "code": "code_line", "layout": "layout_line"}
_IN_KERNEL = ("queues", "data", "code")
_FIRST = re.compile(r"\s*(\.?[A-Za-z_]\w*|[{}])?")
_MARKS = re.compile(r'"[^"\n]*"?|\'(?:\\.|[^\'\\\n])\'|;[^\n]*|//[^\n]*|[()\[\]{},\n]')
_PAIRS = {")": "(", "]": "[", "}": "{"}


@dataclass
class KernelTree:
    name: Name
    sections: dict[str, list[Node]] = field(default_factory=lambda: {name: [] for name in _IN_KERNEL})


@dataclass
class Unit:
    """A parsed program: statements by section, blocks nested, and the sources they came from."""

    params: list[Definition] = field(default_factory=list)
    consts: list[Definition] = field(default_factory=list)
    colours: list[Definition] = field(default_factory=list)
    machine: Name | None = None
    kernels: dict[str, KernelTree] = field(default_factory=dict)
    layout: list[Node] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    unparsed: bool = False  # some line did not parse


def load(path: str | Path) -> Source:
    """The text of a file; `-` is standard input. Raises Rejected[format] naming the file."""
    if str(path) == "-":
        data = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
        name = "<stdin>"
    else:
        name = str(path)
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise Rejected(
                f"{name}: error[format]: cannot read the file: {error.strerror}", category="format"
            ) from None
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = len(data[: error.start].rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        raise Rejected(
            f"{name}:{line}:{column}: error[format]: byte {data[error.start]:#04x} is not UTF-8 text",
            category="format",
            help="save the file as UTF-8",
        ) from None


class Reader:
    """Reads one program. `diagnostics` gets what does not parse."""

    def __init__(self, diagnostics: Diagnostics, include_dirs: Sequence[str | Path] = ()) -> None:
        self.unit = Unit()
        self.diagnostics = diagnostics
        self.include_dirs = [Path(folder) for folder in include_dirs]
        self.section = ""
        self.kernel: KernelTree | None = None
        self.open_files: list[str] = []
        # Open blocks: the node and the list that its statements go to.
        self.blocks: list[tuple[Repeat | If, list[Node]]] = []

    def read(self, source: Source) -> Unit:
        """Read a whole source and everything it includes."""
        self.unit.sources[source.name] = source.text
        self.open_files.append(source.name)
        depth = len(self.blocks)
        for span, rule in self._statements(source):
            try:
                self._statement(span, rule)
            except Problem as problem:
                self._report(problem)
                # What this line declares is unknown now; that is no finding of its own.
                if problem.diagnostic.category == "syntax":
                    self.diagnostics.poison(*re.findall(r"[A-Za-z_]\w*", span.text))
        for block, _ in self.blocks[depth:]:
            self._report(Problem("syntax", "this block is not closed", block.span, help="close it with `}`"))
        del self.blocks[depth:]
        self.open_files.pop()
        return self.unit

    def _report(self, problem: Problem) -> None:
        self.unit.unparsed = True
        self.diagnostics.add(problem)

    # --- cutting text into statements ---
    def _statements(self, source: Source) -> Iterator[tuple[Span, str]]:
        """Spans of statements and the grammar rule for each, by the section at that point."""
        text, position, end = source.text, 0, len(source.text)
        while position < end:
            match = _FIRST.match(text, position)
            assert match
            word, start = match.group(1) or "", match.start(1) if match.group(1) else match.end()
            if start >= end:
                return
            if text[start] == ";" or text.startswith("//", start):
                position = self._line_end(text, start)
                continue
            if word.startswith(".") and word != ".word":
                stop = self._cut(source, start, nest=False, block=False)
                yield Span(source, start, stop), "directive"
            elif word == "}":
                stop = start + 1
                rest = re.compile(r"\s*else\b").match(text, stop)
                yield Span(source, start, stop), "block_line"
                if rest:  # `} else {`: the next statement
                    position = rest.end() - 4
                    continue
            elif word in ("repeat", "if", "else"):
                stop = self._cut(source, start, nest=True, block=True)
                yield Span(source, start, stop), "block_line"
            else:
                nest = self.section in ("data", "layout")
                stop = self._cut(source, start, nest=nest, block=False)
                yield Span(source, start, stop), _RULES.get(self.section, "")
            position = stop

    @staticmethod
    def _line_end(text: str, start: int) -> int:
        end = text.find("\n", start)
        return len(text) if end < 0 else end + 1

    def _cut(self, source: Source, start: int, nest: bool, block: bool) -> int:
        """End of the statement that starts at `start`; `block`: it ends behind its first `{`.

        With `nest` a line's end inside an open bracket does not end it; after a comma it never does.
        """
        text = source.text
        opened: list[tuple[str, int]] = []
        last, comma = start, False  # end of the last thing that counts; was it a comma?
        position = start
        while True:
            match = _MARKS.search(text, position)
            stop = match.start() if match else len(text)
            if text[position:stop].strip():
                last, comma = position + len(text[position:stop].rstrip()), False
            if match is None:
                break
            mark, position = match.group(), match.end()
            if mark == "\n":
                if comma or (nest and opened):
                    if not self._directive_follows(text, position):
                        continue
                break
            if mark[0] == ";" or mark.startswith("//"):
                continue
            if mark == "}" and not opened:
                break
            last, comma = position, mark == ","
            if mark == "{" and block and not opened:
                return position
            if mark in ("(", "[", "{"):
                opened.append((mark, match.start()))
            elif mark in _PAIRS and opened and opened[-1][0] == _PAIRS[mark]:
                opened.pop()
        if opened and nest:
            bracket, where = opened[-1]
            help = f"close it with `{dict(zip('([{', ')]}', strict=True))[bracket]}`"
            if ";" in text[where : self._line_end(text, where)]:
                help += "; `;` starts a comment: separate with commas or new lines"
            # Resume with the next line: what was swallowed may hold good statements.
            first_line = self._line_end(text, where) - 1 if "\n" in text[where:] else len(text)
            self._report(
                Problem("syntax", f"`{bracket}` is not closed", Span(source, where, where + 1), help=help)
            )
            self._skip_parse = start
            return max(first_line, where + 1)
        return last

    _skip_parse = -1

    @staticmethod
    def _directive_follows(text: str, position: int) -> bool:
        match = _FIRST.match(text, position)
        return bool(match and match.group(1) and match.group(1) in DIRECTIVES)

    # --- one statement ---
    def _statement(self, span: Span, rule: str) -> None:
        if self._skip_parse == span.start:
            self._skip_parse = -1
            return
        if rule == "directive":
            word = span.text.split(None, 1)[0]
            if word not in DIRECTIVES:
                first = Span(span.source, span.start, span.start + len(word))
                raise Problem(
                    "syntax",
                    f"unknown directive `{word}`",
                    first,
                    help=did_you_mean(word, [*DIRECTIVES, ".word"]),
                )
            self._directive(parse(rule, span))
        elif not rule:
            raise Problem(
                "syntax",
                "this line stands before any section",
                span,
                help="start a kernel with `.kernel NAME` and `.code`, or the layout with `.layout`",
            )
        elif not self.section:
            raise Problem("syntax", "a block stands before any section", span)
        else:
            tree = parse(rule, span)
            if isinstance(tree, Head):
                self._block(tree)
            else:
                self._target().append(tree)

    def _target(self) -> list[Node]:
        if self.blocks:
            return self.blocks[-1][1]
        if self.section == "layout":
            return self.unit.layout
        assert self.kernel
        return self.kernel.sections[self.section]

    def _directive(self, line: Directive) -> None:
        if self.blocks:
            raise Problem(
                "syntax", "a directive inside a block", line.span, help="close the block with `}` first"
            )
        if line.kind in ("params", "consts", "colours"):
            getattr(self.unit, line.kind).extend(line.definitions)
        elif line.kind == "machine":
            self.unit.machine = line.name
        elif line.kind == "include":
            self._include(line)
        elif line.kind == "kernel":
            assert line.name
            first = self.unit.kernels.get(line.name.text)
            self.section, self.kernel = "", KernelTree(line.name)
            if first:
                raise Problem(
                    "name",
                    f"kernel `{line.name.text}` is declared twice",
                    line.name.span,
                    notes=[("first declared here", first.name.span)],
                )
            self.unit.kernels[line.name.text] = self.kernel
        else:
            assert line.name
            section = line.name.text
            if section in _IN_KERNEL and self.kernel is None:
                raise Problem(
                    "syntax",
                    f"`.{section}` stands outside a kernel",
                    line.span,
                    help="put `.kernel NAME` before it",
                )
            self.section = section

    def _block(self, head: Head) -> None:
        if head.kind == "repeat":
            assert head.variable
            start, stop, step = head.values
            assert start
            assert stop
            repeat = Repeat(head.span, head.variable, start, stop, step, [])
            self._target().append(repeat)
            self.blocks.append((repeat, repeat.body))
        elif head.kind == "if_":
            block = If(head.span, [(head.values[0], [])])
            self._target().append(block)
            self.blocks.append((block, block.branches[-1][1]))
        elif head.kind == "block_end":
            if not self.blocks:
                raise Problem("syntax", "`}` closes nothing", head.span)
            block_, _ = self.blocks.pop()
            self._closed = block_ if isinstance(block_, If) else None
        else:
            block = self._closed if self._last_is(self._closed) else None  # type: ignore[assignment]
            if block is None or block.branches[-1][0] is None:
                raise Problem("syntax", "`else` without an `if` before it", head.span)
            block.branches.append((head.values[0] if head.values else None, []))
            self.blocks.append((block, block.branches[-1][1]))

    _closed: If | None = None

    def _last_is(self, block: If | None) -> bool:
        target = self._target()
        return block is not None and bool(target) and target[-1] is block

    def _include(self, line: Directive) -> None:
        assert line.name
        wanted = line.name.text
        here = Path(self.open_files[-1])
        folders = (
            [here.parent, *self.include_dirs]
            if not self.open_files[-1].startswith("<")
            else [Path(), *self.include_dirs]
        )
        path = next((folder / wanted for folder in folders if (folder / wanted).is_file()), None)
        if path is None:
            raise Problem(
                "name",
                f"no file `{wanted}` to include",
                line.name.span,
                notes=[f"looked in {folder}" for folder in folders],
                help="add a folder to search with -I or include_dirs",
            )
        if str(path) in self.open_files:
            raise Problem("name", f"`{wanted}` includes itself", line.name.span)
        if str(path) in self.unit.sources:
            return  # included once already: the same declarations
        try:
            self.read(load(path))
        except Rejected as error:
            self.diagnostics.add(
                Diagnostic("format", error.message, line.name.span.location, help=error.help)
            )
