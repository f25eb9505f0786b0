"""The tokenizer of a weight file: byte-level BPE made from the file's own metadata, and ChatML conversations.

Text is always text: `<|im_end|>` typed into a prompt becomes the tokens of its characters. Control tokens
come only from `chat`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...isa.errors import Rejected, Usage
from ..weights.weight_file import WeightFile, WeightFileError, quoted

__all__ = ["PRE_TOKENIZERS", "TextStream", "Tokenizer"]

PRE_TOKENIZERS = (
    "smollm",
    "gpt-2",
)  # values of tokenizer.ggml.pre that `Tokenizer` splits exactly as trained
NORMAL = 1  # tokenizer.ggml.token_type of an ordinary piece of text
SYSTEM = re.compile(r"<\|im_start\|>system\\?\n(.*?)<\|im_end\|>", re.S)  # a template's own system message


class Tokenizer:
    """Text to token ids and back. Raises WeightFileError if the file's vocabulary cannot be used."""

    def __init__(self, file: WeightFile) -> None:
        """Read vocabulary, merges and the way text is split from the metadata of a GGUF file."""
        try:
            from tokenizers import Tokenizer as Splitter
            from tokenizers import models, pre_tokenizers
        except ImportError as error:
            raise Rejected(
                "the Python package `tokenizers`, which splits text into tokens, cannot be imported",
                category="unsupported",
                notes=[str(error)],
                help="install it for this Python: python -m pip install 'tokenizers>=0.20'",
            ) from error

        self.tokens: list[str] = file.key("tokenizer.ggml.tokens", list)
        ids = {token: number for number, token in enumerate(self.tokens)}
        merges = [tuple(line.split(" ")) for line in file.key("tokenizer.ggml.merges", list)]
        odd = next((m for m in merges if len(m) != 2 or not {*m, "".join(m)} <= ids.keys()), None)
        if odd is not None:
            item = 'key "tokenizer.ggml.merges"'
            raise WeightFileError(
                file.path, f"merge {quoted(' '.join(odd))} is not of the vocabulary", item=item
            )
        split: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        if file.key("tokenizer.ggml.pre", str) == "smollm":
            split.insert(0, pre_tokenizers.Digits(individual_digits=True))
        self._splitter = Splitter(models.BPE(vocab=ids, merges=merges))
        self._splitter.pre_tokenizer = pre_tokenizers.Sequence(split)
        self._bytes = _byte_alphabet()
        self._is_text = self._kinds(file)
        self._ids = ids
        self.end = self._control(file, "eos_token_id")  # a model's own end of its answer
        self.begin: int | None = None
        if file.metadata.get("tokenizer.ggml.add_bos_token") is True:
            self.begin = self._control(file, "bos_token_id")
        template = file.metadata.get("tokenizer.chat_template")
        self._template = template if isinstance(template, str) else ""

    def _kinds(self, file: WeightFile) -> list[bool]:
        """Which tokens are text; checks that these are spelled in the characters of bytes."""
        kinds = [True] * len(self.tokens)
        if "tokenizer.ggml.token_type" in file.metadata:
            types = file.key("tokenizer.ggml.token_type", np.ndarray)
            if len(types) != len(self.tokens):
                rule = f"{len(types)} types for {len(self.tokens)} tokens"
                raise WeightFileError(file.path, rule, item='key "tokenizer.ggml.token_type"')
            kinds = (types == NORMAL).tolist()
        letters = set("".join(t for t, text in zip(self.tokens, kinds, strict=True) if text))
        if odd := sorted(letters - self._bytes.keys()):
            rule = f"a token is spelled with {odd[0]!a}, which stands for no byte"
            raise WeightFileError(file.path, rule, item='key "tokenizer.ggml.tokens"')
        return kinds

    def _control(self, file: WeightFile, name: str) -> int:
        """A token that the metadata names by its number."""
        number = file.key(f"tokenizer.ggml.{name}", int)
        if not 0 <= number < len(self.tokens):
            rule = f"there is no token {number} in a vocabulary of {len(self.tokens)}"
            raise WeightFileError(file.path, rule, item=f'key "tokenizer.ggml.{name}"')
        return number

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; raises Usage naming what is no text, or has no token."""
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            odd_one = ascii(text[error.start])
            raise Usage(f"the text is not UTF-8: {odd_one} at character {error.start}") from None
        found: list[int] = self._splitter.encode(text).ids
        if self.bytes_of(found) != raw:
            known = {c for c in text if self._knows(c)}
            odd = sorted(set(text) - known)[:8]
            raise Usage(
                f"the model has no token for {', '.join(ascii(c) for c in odd) or 'a part of the text'}",
                category="range",
                help="leave these characters out",
            )
        return found

    def prompt(self, text: str) -> list[int]:
        """Token ids of a text to go on with: a model's start token, if it wants one, and the text."""
        return [*([] if self.begin is None else [self.begin]), *self.encode(text)]

    def chat(self, text: str, system: str | None = None) -> list[int]:
        """Token ids of a conversation that waits for the answer to `text`, in ChatML.

        `system`: the system message; default: the one in the model's template, if there is one.
        Raises Usage if the model's template is not ChatML.
        """
        start, end = self._ids.get("<|im_start|>"), self._ids.get("<|im_end|>")
        if "<|im_start|>" not in self._template or start is None or end is None:
            raise Usage("the model has no ChatML template", category="unsupported", help="leave out --chat")
        if system is None:
            own = SYSTEM.search(self._template.replace("\\n", "\n"))
            system = own.group(1) if own else None
        ids: list[int] = []
        for role, content in (("system", system), ("user", text)):
            if content is not None:
                ids += [start, *self.encode(f"{role}\n{content}"), end, *self.encode("\n")]
        return [*ids, start, *self.encode("assistant\n")]

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of some tokens; control tokens as their names."""
        out = bytearray()
        for number in ids:
            if not 0 <= number < len(self.tokens):
                raise Usage(f"there is no token {number}; legal: 0..{len(self.tokens) - 1}", category="range")
            token = self.tokens[number]
            if self._is_text[number]:
                out += bytes(self._bytes[c] for c in token)
            else:
                out += token.encode()
        return bytes(out)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", "replace")

    def _knows(self, character: str) -> bool:
        return self.bytes_of(self._splitter.encode(character).ids) == character.encode(
            "utf-8", "surrogatepass"
        )


class TextStream:
    """Text as its tokens come: characters of several tokens appear when they are complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that is complete with this token, perhaps none."""
        return self._decoder.decode(self._tokenizer.bytes_of([token]))

    def rest(self) -> str:
        """What an unfinished character leaves at the end."""
        return self._decoder.decode(b"", True)


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(others)}
