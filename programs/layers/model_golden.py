"""A whole llama model in the machine's arithmetic on the host: golden layers, the head; per-stage errors.

The embedding and the head lie in f16; the head adds in f32 in the order of the host's library, so logits are
no bit-for-bit reference, the hidden vectors are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...fabric.spec import MachineSpec
from ...isa.errors import Usage
from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import add32, mul32
from ...isa.special import rsqrt32
from ..kernels.dequantise import weights_of
from ..weights.groups import groups_of
from ..weights.weight_file import WeightFile
from .llama_golden import LayerGolden
from .llama_plan import LayerConfig, LayerPlan, plan_layer
from .llama_weights import layer_weights

__all__ = ["ModelGolden", "StageError", "config_of", "error_table", "stage_errors"]


def config_of(file: WeightFile, kv_capacity: int = 512) -> LayerConfig:
    """The layer sizes of a GGUF file of the llama architecture."""
    kind = file.key("general.architecture", str)
    if kind != "llama":
        raise Usage(f"the architecture is {kind}, a llama is needed", category="type")
    heads = file.key("llama.attention.head_count", int)
    hidden = file.key("llama.embedding_length", int)
    return LayerConfig(
        hidden=hidden,
        heads=heads,
        kv_heads=file.key("llama.attention.head_count_kv", int),
        head_dim=file.key("llama.rope.dimension_count", int),
        ffn=file.key("llama.feed_forward_length", int),
        rope_base=file.key("llama.rope.freq_base", float),
        eps=file.key("llama.attention.layer_norm_rms_epsilon", float),
        kv_capacity=kv_capacity,
    )


class ModelGolden:
    """All layers of a file, each a `LayerGolden`, on one plan; tied or separate head."""

    def __init__(
        self, file: WeightFile, spec: MachineSpec, grid: tuple[int, int] | None = None, kv_capacity: int = 512
    ) -> None:
        self.config = config_of(file, kv_capacity)
        self.plan: LayerPlan = plan_layer(self.config, spec, grid)
        count = file.key("llama.block_count", int)
        self.layers = [LayerGolden(self.plan, layer_weights(file, n)) for n in range(count)]
        self.embedding = _f16_matrix(file, "token_embd.weight")
        self._norm = file.tensor("output_norm.weight").to_float32()
        head = _f16_matrix(file, "output.weight") if "output.weight" in file else self.embedding
        self._head = head.astype(np.float32)

    def step(self, token: int, seen: Callable[[int, LayerGolden], None] | None = None) -> np.ndarray:
        """Hidden vector float16 (hidden,) behind the last layer. `seen` is called after every layer."""
        hidden = self.embedding[token]
        for number, layer in enumerate(self.layers):
            hidden = layer.step(hidden)
            if seen is not None:
                seen(number, layer)
        return hidden

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """float32 (vocabulary,)."""
        wide = f32_from_f16(hidden)
        total = np.float32(0)
        for part in (wide * wide).reshape(self.plan.rows, -1).sum(axis=1, dtype=np.float32):
            total = np.float32(total + part)
        scale = rsqrt32(add32(mul32(total, np.float32(1 / len(wide))), np.float32(self.config.eps)))
        normal = f16_from_f32(mul32(mul32(wide, scale), self._norm))
        return self._head @ f32_from_f16(normal)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` most probable tokens after a prompt, one by one."""
        hidden = self.embedding[0]
        for token in prompt:
            hidden = self.step(token)
        found: list[int] = []
        while True:
            found.append(int(self.logits(hidden).argmax()))
            if len(found) == count:
                return found
            hidden = self.step(found[-1])


def _f16_matrix(file: WeightFile, name: str) -> np.ndarray:
    """A matrix of a file as float16, a quantised one by the machine's rounding."""
    tensor = file.tensor(name)
    if tensor.kind in ("F32", "F16", "BF16"):
        return tensor.to_float32().astype(np.float16)
    groups = groups_of(tensor)
    return weights_of(groups.kind, groups.data)[:, : groups.inputs]


class StageError(NamedTuple):
    """How far a stage is from its reference, over all tokens."""

    stage: str
    largest: float  # value of the reference, absolute
    worst: float  # absolute error
    rms: float
    relative: float  # rms over the rms of the reference


def stage_errors(have: dict[str, list[np.ndarray]], want: dict[str, np.ndarray]) -> list[StageError]:
    """Errors of every stage of `want` (tokens, ...) against `have`, one array per token, in order."""
    rows = []
    for stage, reference in want.items():
        got = np.stack(have[stage]).astype(np.float64).reshape(reference.shape)
        error, exact = got - reference, reference.astype(np.float64)
        rms = float(np.sqrt(np.mean(error**2)))
        rows.append(
            StageError(
                stage, float(np.abs(exact).max()), float(np.abs(error).max()), rms,
                rms / max(float(np.sqrt(np.mean(exact**2))), 1e-30),
            )
        )  # fmt: skip
    return rows


def error_table(errors: Sequence[StageError], bound: float) -> str:
    """The errors as lines; names the first stage whose relative rms error exceeds `bound`."""
    lines = [f"{'stage':<12}{'largest':>12}{'max error':>12}{'rms error':>12}{'relative':>11}"]
    lines += [
        f"{e.stage:<12}{e.largest:>12.4g}{e.worst:>12.3g}{e.rms:>12.3g}{e.relative:>11.2e}" for e in errors
    ]
    over = next((e for e in errors if e.relative > bound), None)
    lines.append(
        f"every stage is within {bound:g}" if over is None else f"first above {bound:g}: {over.stage}"
    )
    return "\n".join(lines)
