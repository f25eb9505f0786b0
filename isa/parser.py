"""The parser of one statement: matches of grammar.lark become nodes of syntax.py, a mismatch a `Problem`."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, VisitError
from lark.lexer import PatternRE, PatternStr, TerminalDef

from .diagnostics import Problem, Span
from .mismatch import mismatch
from .syntax import (
    Advanced,
    Align,
    Binary,
    Call,
    Choose,
    Code,
    Data,
    Definition,
    Directive,
    EdgeLine,
    Flag,
    Grid,
    Head,
    Here,
    Index,
    Instruction,
    ListOf,
    Memory,
    Name,
    Node,
    Number,
    Option,
    Over,
    Place,
    Position,
    Queue,
    Queues,
    Range,
    Region,
    RouteLine,
    Task,
    Unary,
    Words,
)

# Binary operators from loosest to tightest; all group from the left.
PRECEDENCE = (
    ("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {operator: level for level, row in enumerate(PRECEDENCE) for operator in row}
RULES = ("directive", "block_line", "queue_line", "data_line", "code_line", "layout_line")


_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "\\": 92, "'": 39, '"': 34}


def literal(text: str) -> int | float:
    """Value of a NUMBER, FLOAT or CHARACTER token."""
    if text[0] == "'":
        return _ESCAPES[text[2]] if text[1] == "\\" else ord(text[1])
    prefix = text[:2].lower()
    if prefix in ("0x", "0b", "0o"):
        return int(text[2:], {"0x": 16, "0b": 2, "0o": 8}[prefix])
    if text.isdigit() or "_" in text:
        return int(text)
    return float(text.removesuffix("f"))


class _Builder(Transformer):
    """Methods are named after the grammar's rules and get the rule's parts."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.source: Any = None
        self.base = 0
        self.whole: Any = None  # span of the statement

    def at(self, token: Token) -> Span:
        start, end = token.start_pos or 0, token.end_pos or 0
        return Span(self.source, self.base + start, self.base + end)

    def name(self, token: Token) -> Name:
        return Name(self.at(token), str(token))

    def value(self, part: Any) -> Any:
        """An expression's part as a node: tokens become leaves."""
        if not isinstance(part, Token):
            return part
        span = self.at(part)
        if part.type in ("NAME", "DOTTED"):
            return Name(span, str(part))
        if part.type == "HERE":
            return Here(span)
        if part.type == "ADVANCED":
            return Advanced(span, int(part[1:-1]))
        try:
            return Number(span, literal(part))
        except (ValueError, KeyError):
            raise Problem("syntax", f"`{part}` is not a number", span) from None

    def values(self, parts: list[Any]) -> list[Any]:
        return [self.value(part) for part in parts if part is not None]

    # expressions
    def chain(self, parts: list[Any]) -> Node:
        self._parts, self._next = parts, 0
        return self.grouped(0)

    def grouped(self, level: int) -> Node:
        left = self.prefixed()
        while self._next < len(self._parts):
            operator = self._parts[self._next]
            own = _LEVEL[operator]
            if own < level:
                break
            self._next += 1
            right = self.grouped(own + 1)
            left = Binary(left.span.to(right.span), str(operator), left, right)
        return left

    def prefixed(self) -> Node:
        part = self._parts[self._next]
        self._next += 1
        if isinstance(part, Token) and part.type == "UNARY":
            operand = self.prefixed()
            return Unary(self.at(part).to(operand.span), str(part), operand)
        return self.value(part)

    def choose(self, parts: list[Any]) -> Node:
        condition, yes, no = self.values(parts)
        return Choose(condition.span.to(no.span), condition, yes, no)

    def index(self, parts: list[Any]) -> Node:
        base, *indices = self.values(parts)
        return Index(self.closed(base.span.to(indices[-1].span), "]"), base, indices)

    def call(self, parts: list[Any]) -> Node:
        function, *arguments = self.values(parts)
        return Call(self.closed(function.span.to(arguments[-1].span), ")"), function, arguments)

    def list_of(self, parts: list[Any]) -> Node:
        items: list[Node] = []
        for item in self.values(parts):
            items += item.items if isinstance(item, ListOf) else [item]
        span = items[0].span.to(items[-1].span) if items else self.whole
        return ListOf(span, items)

    def closed(self, span: Span, bracket: str) -> Span:
        """The span up to and including the bracket that closes it."""
        end = self.source.text.find(bracket, span.end)
        return Span(self.source, span.start, span.end if end < 0 else end + 1)

    # directives
    def definition(self, parts: list[Any]) -> Definition:
        name = self.name(parts[0])
        value = self.value(parts[1]) if parts[1] is not None else None
        return Definition(name.span.to(value.span) if value else name.span, name, value)

    colour = binding = definition

    def params(self, parts: list[Any]) -> Directive:
        return Directive(self.whole, "params", parts)

    def consts(self, parts: list[Any]) -> Directive:
        return Directive(self.whole, "consts", parts)

    def colours(self, parts: list[Any]) -> Directive:
        return Directive(self.whole, "colours", parts)

    def _named(self, kind: str, part: Token) -> Directive:
        return Directive(self.whole, kind, name=Name(self.at(part), str(part).strip('"')))

    def include(self, parts: list[Any]) -> Directive:
        return self._named("include", parts[0])

    def machine(self, parts: list[Any]) -> Directive:
        return self._named("machine", parts[0])

    def kernel(self, parts: list[Any]) -> Directive:
        return self._named("kernel", parts[0])

    def section(self, parts: list[Any]) -> Directive:
        return Directive(self.whole, "section", name=Name(self.whole, self.whole.text.split()[0][1:]))

    # blocks
    def repeat(self, parts: list[Any]) -> Head:
        return Head(self.whole, "repeat", self.name(parts[0]), [p and self.value(p) for p in parts[1:]])

    def if_(self, parts: list[Any]) -> Head:
        return Head(self.whole, "if_", None, self.values(parts))

    def else_if(self, parts: list[Any]) -> Head:
        return Head(self.whole, "else_if", None, self.values(parts))

    def else_(self, parts: list[Any]) -> Head:
        return Head(self.whole, "else_")

    def block_end(self, parts: list[Any]) -> Head:
        return Head(self.whole, "block_end")

    # queues and data
    def queue(self, parts: list[Any]) -> tuple:
        return self.name(parts[0]), parts[1] and self.value(parts[1])

    def queue_line(self, parts: list[Any]) -> Queues:
        direction = str(parts[0])
        return Queues(self.whole, [Queue(name.span, direction, name, number) for name, number in parts[1:]])

    def shape(self, parts: list[Any]) -> list:
        return self.values(parts)

    def export(self, parts: list[Any]) -> Option:
        return Option(self.whole, "export", self.whole)

    def group(self, parts: list[Any]) -> Option:
        value = self.value(parts[0])
        return Option(value.span, "group", value)

    def align(self, parts: list[Any]) -> Option:
        return Option(self.whole, "align", self.value(parts[0]))

    def overlay(self, parts: list[Any]) -> Option:
        return Option(self.whole, "at", self.value(parts[0]))

    def data(self, parts: list[Any]) -> Data:
        name, kind, shape, *rest = parts
        modifiers = {m.kind: m.value for m in rest if isinstance(m, Option)}
        initial = [self.value(p) for p in rest if p is not None and not isinstance(p, Option)]
        return Data(
            self.whole,
            "data",
            self.name(name),
            self.name(kind),
            shape,
            modifiers,
            initial[0] if initial else None,
        )

    def fifo(self, parts: list[Any]) -> Data:
        name, kind, shape, *rest = parts
        return Data(
            self.whole, "fifo", self.name(name), self.name(kind), shape, {m.kind: m.value for m in rest}, None
        )

    def stored_descriptor(self, parts: list[Any]) -> Data:
        name, operand, *over = parts
        loops = over[0] if over else None
        return Data(self.whole, "descriptor", self.name(name), None, None, {}, self.value(operand), loops)

    def align_line(self, parts: list[Any]) -> Align:
        return Align(self.whole, self.value(parts[0]))

    # code
    def label(self, parts: list[Any]) -> Name:
        return self.name(parts[0])

    def entry(self, parts: list[Any]) -> Option:
        return Option(self.whole, "entry")

    def local(self, parts: list[Any]) -> Option:
        return Option(self.whole, "local")

    def blocked(self, parts: list[Any]) -> Option:
        return Option(self.whole, "blocked")

    def data_task(self, parts: list[Any]) -> Option:
        return Option(self.at(parts[0]), "data", self.name(parts[0]))

    def control_task(self, parts: list[Any]) -> Option:
        value = self.value(parts[0])
        return Option(value.span, "control", value)

    def task_id(self, parts: list[Any]) -> Option:
        value = self.value(parts[0])
        return Option(value.span, "id", value)

    def priority(self, parts: list[Any]) -> Option:
        return Option(self.at(parts[0]), "priority", int(parts[0] == "high"))

    def task(self, parts: list[Any]) -> Task:
        return Task(self.whole, self.name(parts[0]), parts[1:])

    def thread(self, parts: list[Any]) -> Option:
        value = self.value(parts[0])
        return Option(value.span, "thread", value)

    def completion(self, parts: list[Any]) -> Option:
        return Option(
            self.at(parts[0]).to(self.at(parts[1])), "completion", (str(parts[0]), self.value(parts[1]))
        )

    def loop(self, parts: list[Any]) -> tuple:
        return self.name(parts[0]), self.value(parts[1])

    def over(self, parts: list[Any]) -> Over:
        return Over(parts[0][0].span.to(parts[-1][1].span), parts)

    def memory(self, parts: list[Any]) -> Memory:
        value = self.value(parts[0])
        start = self.source.text.rfind("[", 0, value.span.start)
        return Memory(self.closed(Span(self.source, start, value.span.end), "]"), value)

    def instruction(self, parts: list[Any]) -> Instruction:
        mnemonic, *rest = parts
        nodes = self.values(rest)
        suffixes: list[Node] = [node for node in nodes if isinstance(node, (Option, Over))]
        operands = [node for node in nodes if not isinstance(node, (Option, Over))]
        return Instruction(self.whole, self.name(mnemonic), operands, suffixes)

    def word(self, parts: list[Any]) -> Words:
        return Words(self.whole, self.values(parts))

    def code_line(self, parts: list[Any]) -> Code:
        labels = [part for part in parts if isinstance(part, Name)]
        content = [part for part in parts if part is not None and not isinstance(part, Name)]
        return Code(self.whole, labels, content[0] if content else None)

    # layout
    def grid(self, parts: list[Any]) -> Grid:
        return Grid(self.whole, *self.values(parts))

    def everywhere(self, parts: list[Any]) -> Range:
        return Range(self.whole)

    def span(self, parts: list[Any]) -> Range:
        values = [p and self.value(p) for p in (*parts, None, None)[:3]]
        last = values[2] or values[1] or values[0]
        return Range(values[0].span.to(last.span), *values)

    def region(self, parts: list[Any]) -> Region:
        x, y, where = parts
        return Region(self.whole, x, y, where and self.value(where))

    def place(self, parts: list[Any]) -> Place:
        kernel, region, *bindings = parts
        return Place(self.whole, self.name(kernel), region, [b for b in bindings if b is not None])

    def ports(self, parts: list[Any]) -> list:
        return [self.name(part) for part in parts]

    def position(self, parts: list[Any]) -> Position:
        inputs, outputs = parts
        return Position(inputs[0].span.to(outputs[-1].span), inputs, outputs)

    def flag(self, parts: list[Any]) -> Flag:
        if parts and parts[0] is not None and parts[0].type == "FLAG":
            return Flag(self.at(parts[0]), str(parts[0]))
        if parts and parts[0] is not None:
            return Flag(self.at(parts[0]), "swap", self.name(parts[0]))
        return Flag(self.whole, "swap")

    def route(self, parts: list[Any]) -> RouteLine:
        colour, region, *rest = parts
        positions = [part for part in rest if isinstance(part, Position)]
        flags = [part for part in rest if isinstance(part, Flag)]
        return RouteLine(self.whole, self.value(colour), region, positions, flags)

    def lanes(self, parts: list[Any]) -> Node:
        return parts[0]

    def edge_port(self, parts: list[Any]) -> EdgeLine:
        stream, name, side, lanes, colour, kind, shape, single = parts
        return EdgeLine(
            self.whole,
            stream == "output",
            self.name(name),
            self.name(side),
            lanes,
            self.value(colour),
            self.name(kind),
            shape,
            single is not None,
        )


_builder = _Builder()


@cache
def parser() -> Lark:
    """The generated parser (about 50 ms, once)."""
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        start=list(RULES),
        transformer=_builder,
        maybe_placeholders=True,
        edit_terminals=_whole_words,
    )


def _whole_words(terminal: TerminalDef) -> None:
    """Make a keyword match only as a whole word: `gridx` is not `grid x`."""
    pattern = terminal.pattern
    if isinstance(pattern, PatternStr) and pattern.value[-1:].isalpha():
        terminal.pattern = PatternRE(re.escape(pattern.value) + r"\b")
        terminal.priority = 4  # before NAME


def parse(rule: str, span: Span) -> Any:
    """The tree of one statement. Raises Problem(syntax) at the first character or word that does not fit."""
    _builder.source, _builder.base, _builder.whole = span.source, span.start, span
    try:
        return parser().parse(span.text, start=rule)
    except UnexpectedInput as error:
        raise mismatch(error, span, rule, _text_of) from None
    except VisitError as error:
        if isinstance(error.orig_exc, Problem):
            raise error.orig_exc from None
        raise


def _text_of(terminal: str) -> str:
    """How a keyword or sign of the grammar is written."""
    return str(parser().get_terminal(terminal).pattern.value).removesuffix(r"\b").replace("\\", "")
