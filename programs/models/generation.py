"""Writing text: prompts through the stages as a pipeline, then token after token for every request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...isa.errors import Interrupted, Usage
from .sampling import Sampler
from .stages import Stages

__all__ = ["Ends", "Generation", "generate"]

OnToken = Callable[[int, int, int], None]  # request, token, tick


class Ends(Protocol):
    """Both ends of a model: see HostHead and WaferHead."""

    def embed(self, token: int) -> np.ndarray:
        """Hidden vector of a token."""
        ...

    def choose(self, answer: np.ndarray, sampler: Sampler) -> int:
        """The next token from what the last stage gave."""
        ...


@dataclass
class Generation:
    """Tokens of every request, and the tick at which the last layer's output for each was at the host."""

    prompts: list[list[int]]
    tokens: list[list[int]] = field(default_factory=list)
    ticks: list[list[int]] = field(default_factory=list)
    end: str = "finished"  # or interrupted

    @property
    def made(self) -> int:
        """Tokens in all."""
        return sum(map(len, self.tokens))

    @property
    def first_tick(self) -> int:
        """When the first token of request 0 was there: the time to first token."""
        return self.ticks[0][0] if self.ticks and self.ticks[0] else 0

    @property
    def last_tick(self) -> int:
        """When the last token of all was there."""
        return max((ticks[-1] for ticks in self.ticks if ticks), default=0)

    @property
    def ticks_per_token(self) -> float:
        """Mean ticks from one token of request 0 to the next; 0 if there is only one."""
        ticks = self.ticks[0] if self.ticks else []
        return (ticks[-1] - ticks[0]) / (len(ticks) - 1) if len(ticks) > 1 else 0.0


def generate(
    stages: Stages,
    ends: Ends,
    prompts: Sequence[Sequence[int]],
    count: int,
    samplers: Sequence[Sampler] | None = None,
    *,
    stop: int | None = None,
    capacity: int | None = None,
    on_token: OnToken | None = None,
) -> Generation:
    """Go on with every prompt for `count` tokens, or until the token `stop`, which is kept.

    All prompts are there at tick 0 and enter one after the other; a new token is embedded the moment the last
    stage's output is there, and enters behind everything sent before. `samplers`: one per prompt, greedy by
    default.
    `capacity`: tokens that the KV cache of a request holds. Ends early, with what was made, if interrupted.
    """
    check_requests(prompts, count, capacity, stages.requests)
    chosen = list(samplers or [Sampler() for _ in prompts])
    made = Generation([list(p) for p in prompts], [[] for _ in prompts], [[] for _ in prompts])
    waiting: deque[tuple[int, int]] = deque()  # (request, item whose output gives its next token)
    for request, prompt in enumerate(prompts):
        for token in prompt:
            item = stages.send(request, ends.embed(token), 0)
        waiting.append((request, item))
    try:
        while waiting:
            request, item = waiting.popleft()
            answer, tick = stages.receive(item)
            token = ends.choose(answer, chosen[request])
            made.tokens[request].append(token)
            made.ticks[request].append(tick)
            if on_token is not None:
                on_token(request, token, tick)
            if len(made.tokens[request]) < count and token != stop:
                waiting.append((request, stages.send(request, ends.embed(token), tick)))
    except Interrupted:
        made.end = "interrupted"
    return made


def check_requests(prompts: Sequence[Sequence[int]], count: int, capacity: int | None, requests: int) -> None:
    """Raise Usage for what `generate` cannot do on stages that keep `requests` apart."""
    if count < 1:
        raise Usage(f"{count} tokens; at least 1 is needed", category="range")
    if not prompts or len(prompts) > requests:
        raise Usage(f"{len(prompts)} requests; these stages keep {requests} apart", category="range")
    for request, prompt in enumerate(prompts):
        if not prompt:
            raise Usage(
                f"the prompt of request {request} is empty", category="range", help="give at least one token"
            )
        needed = len(prompt) + count - 1  # the last token is not fed back
        if capacity is not None and needed > capacity:
            raise Usage(
                f"a prompt of {len(prompt)} tokens and {count} new ones need a KV cache of {needed} tokens; "
                f"it holds {capacity}",
                category="capacity",
                help="shorten the prompt, ask for fewer tokens, or plan a larger KV cache",
            )
