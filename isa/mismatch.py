"""What to say about a line that does not parse."""

from __future__ import annotations

from collections.abc import Callable

from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from .diagnostics import Problem, Span, did_you_mean

# How the parser's terminals are called in messages.
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "FLOAT": "a number", "CHARACTER": "a number", "DOTTED": "a name",
    "STRING": 'a "string"', "UNARY": "an expression", "HERE": "an expression", "ADVANCED": "an operand",
    "BINARY": "an operator", "$END": "the end of the line", "<END-OF-FILE>": "the end of the line",
    "LEVEL": "`high` or `low`",
    "ACTION": "`activate` or `unblock`", "DIRECTION": "`in` or `out`", "STREAM": "`input` or `output`",
    "FLAG": "`ring`, `pop` or `merge`",
}  # fmt: skip


def mismatch(error: UnexpectedInput, span: Span, rule: str, text_of: Callable[[str], str]) -> Problem:
    """The problem of a statement that does not parse: what stands there, and what could stand there."""
    expected = (
        getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None)
    )
    names: dict[str, None] = {}
    literals = []
    for terminal in sorted(expected or ()):
        if terminal in _WORDS:
            names[_WORDS[terminal]] = None
        else:
            text = text_of(terminal)
            literals.append(text)
            names[f"`{text}`"] = None
    token = getattr(error, "token", None)
    help = None
    if token is None and isinstance(error, UnexpectedCharacters):
        start = span.start + (error.pos_in_stream or 0)
        end = start + 1
        while end < span.end and (span.source.text[end].isalnum() or span.source.text[end] == "_"):
            if not (span.source.text[start].isalnum() or span.source.text[start] == "_"):
                break
            end += 1
        here = Span(span.source, start, end)
        found = f"`{here.text}`" if here.text.isprintable() else f"character U+{ord(here.text[0]):04X}"
    elif token is not None and token.type != "$END" and token.start_pos is not None:
        here = Span(span.source, span.start + token.start_pos, span.start + token.end_pos)
        found = f"`{here.text}`"
    else:
        here, found = Span(span.source, max(span.start, span.end - 1), span.end), "the line ends"
    if here.text[:1].isalpha():
        help = did_you_mean(here.text, literals, "")
    if {"a name", "a number"} <= names.keys():
        names = {"an operand" if rule == "code_line" else "an expression": None}
    if not help and names:
        listed = list(names)
        shown = listed[:8]
        help = "expected " + ", ".join(shown) + (", ..." if len(listed) > 8 else "")
    text = f"unexpected {found}" if found != "the line ends" else "the line ends too early"
    return Problem("syntax", text, here, help=help or None)
