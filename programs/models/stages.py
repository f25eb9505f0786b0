"""What stands between embedding and head: all layers of a model, as golden twins or as a chain of wafers.

Both keep the KV cache of every request and take tokens as a pipeline does: send many, receive in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ...fabric.chain import Chain

__all__ = ["ChainStages", "GoldenStages", "Lanes", "Layer", "Stages"]


class Stages(Protocol):
    """All layers of a model. Hidden vectors are (hidden,) float16; times are ticks of the stages."""

    requests: int  # sequences that are kept apart, numbered from 0

    def send(self, request: int, hidden: np.ndarray, at: int) -> int:
        """Put the next token of a request behind all sent before; it is there at `at`. Returns its number."""
        ...

    def receive(self, item: int) -> tuple[np.ndarray, int]:
        """What the last stage gave, a hidden vector or a head's answer, and when it was there."""
        ...


class Layer(Protocol):
    """One layer with its own KV cache."""

    def step(self, hidden: np.ndarray) -> np.ndarray:
        """The next token's (hidden,) float16 through this layer; a head gives its answer."""
        ...


class Lanes(Protocol):
    """How a layer's wafer carries a hidden vector at its edges."""

    @property
    def requests(self) -> int:
        """Sequences that a layer keeps apart."""
        ...

    def to_lanes(self, hidden: np.ndarray, request: int = 0) -> np.ndarray:
        """(hidden,) of a request as (lanes, elements)."""
        ...

    def from_lanes(self, lanes: np.ndarray) -> np.ndarray:
        """(lanes, elements) as (hidden,)."""
        ...


class GoldenStages:
    """Layers computed on the host, one list of them per request. There is no time: every tick is 0."""

    def __init__(self, layers: Sequence[Sequence[Layer]]) -> None:
        self._layers = layers
        self._hidden: list[np.ndarray] = []
        self.requests = len(layers)

    def send(self, request: int, hidden: np.ndarray, at: int = 0) -> int:
        """Computes at once."""
        for layer in self._layers[request]:
            hidden = layer.step(hidden)
        self._hidden.append(hidden)
        return len(self._hidden) - 1

    def receive(self, item: int) -> tuple[np.ndarray, int]:
        """What `send` computed."""
        return self._hidden[item], 0


class ChainStages:
    """A chain of wafers: layers, perhaps a head with the output port `token`."""

    def __init__(self, chain: Chain, lanes: Lanes, interrupted: Callable[[], bool] | None = None) -> None:
        self.chain = chain
        self._lanes = lanes
        self.requests = lanes.requests
        self._interrupted = interrupted

    def send(self, request: int, hidden: np.ndarray, at: int = 0) -> int:
        """Queue the token at the host's end of the chain."""
        return self.chain.send({"hidden": self._lanes.to_lanes(hidden, request)}, at=at)

    def receive(self, item: int) -> tuple[np.ndarray, int]:
        """Run the chain until the item is through; raises what `Chain.receive` raises."""
        delivery = self.chain.receive(item, self._interrupted)
        self.chain.forget(item)
        if "token" in delivery.outputs:
            return delivery.outputs["token"].reshape(-1), delivery.at
        return self._lanes.from_lanes(delivery.outputs["hidden_out"]), delivery.at
