"""A llama forward pass in plain float32 NumPy: the independent oracle of model tests.

Shares no arithmetic with the project; reads the same weight files.
"""

from __future__ import annotations

import numpy as np

PARTS = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"
)  # fmt: skip


class PlainLlama:
    """One sequence. `step(token)` gives logits float32 (vocabulary,). Rotation pairs are (2i, 2i + 1)."""

    def __init__(self, file) -> None:
        value = lambda key: file.metadata[f"llama.{key}"]  # noqa: E731
        self.layers = value("block_count")
        self.heads, self.kv_heads = value("attention.head_count"), value("attention.head_count_kv")
        self.dim = value("embedding_length") // self.heads
        self.eps, self.base = value("attention.layer_norm_rms_epsilon"), value("rope.freq_base")
        self.w = {name: file.tensor(name).to_float32() for name in file.names}
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])
        self.keys = [np.zeros((0, self.kv_heads, self.dim), np.float32) for _ in range(self.layers)]
        self.values = list(self.keys)

    def step(self, token: int) -> np.ndarray:
        x = self.w["token_embd.weight"][token]
        for layer in range(self.layers):
            w = {name: self.w[f"blk.{layer}.{name}.weight"] for name in PARTS}
            x = x + w["attn_output"] @ self.attention(layer, self.norm(x, w["attn_norm"]), w)
            y = self.norm(x, w["ffn_norm"])
            gate = w["ffn_gate"] @ y
            x = x + w["ffn_down"] @ (gate / (1 + np.exp(-gate)) * (w["ffn_up"] @ y))
        return self.head @ self.norm(x, self.w["output_norm.weight"])

    def attention(self, layer: int, y: np.ndarray, w: dict) -> np.ndarray:
        position = len(self.keys[layer])
        q = self.rotate((w["attn_q"] @ y).reshape(self.heads, self.dim), position)
        k = self.rotate((w["attn_k"] @ y).reshape(1, self.kv_heads, self.dim), position)
        v = (w["attn_v"] @ y).reshape(1, self.kv_heads, self.dim)
        keys = self.keys[layer] = np.concatenate([self.keys[layer], k])
        values = self.values[layer] = np.concatenate([self.values[layer], v])
        out = []
        for head in range(self.heads):
            kv = head * self.kv_heads // self.heads
            scores = keys[:, kv] @ q[head] / np.sqrt(np.float32(self.dim))
            weights = np.exp(scores - scores.max())
            out.append(weights / weights.sum() @ values[:, kv])
        return np.concatenate(out).astype(np.float32)

    def rotate(self, x: np.ndarray, position: int) -> np.ndarray:
        angle = position * self.base ** (-np.arange(0, self.dim, 2) / self.dim)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x) + np.float32(self.eps)) * weight
