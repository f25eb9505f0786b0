"""A small llama model with random weights as a GGUF file: one of everything that a real one has."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

SIZES = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "context": 64}
CHATML = "{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def alphabet() -> list[str]:
    """Characters of all bytes in a byte-level vocabulary; written anew here, as the tests' own knowledge."""
    keep = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    names, extra = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + extra)
            extra += 1
    return [names[b] for b in range(256)]


def write_model(path: Path, kind: str = "Q4_1", tied: bool = True, seed: int = 0, **changes) -> Path:
    """Write the file. `changes`: `drop`, `add` name tensors; all others are metadata keys, `__` for dots,
    that replace the ordinary value (None: left out)."""
    drop, add = changes.pop("drop", ()), changes.pop("add", ())
    s = SIZES
    random = np.random.default_rng(seed)
    letters = alphabet()
    missing = letters[1]  # the vocabulary has no token for byte 1
    merges = ["t h", "th e", "Ġ the", "1 2"]
    tokens = SPECIAL + [c for c in letters if c != missing] + ["".join(m.split()) for m in merges]
    metadata = {
        "llama.block_count": s["layers"],
        "llama.context_length": s["context"],
        "llama.embedding_length": s["hidden"],
        "llama.feed_forward_length": s["ffn"],
        "llama.attention.head_count": s["heads"],
        "llama.attention.head_count_kv": s["kv_heads"],
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": s["hidden"] // s["heads"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }
    architecture = changes.pop("architecture", "llama")
    for key, value in changes.items():
        metadata[key.replace("__", ".")] = value
    out = gguf.GGUFWriter(str(path), architecture)
    for key, value in metadata.items():
        if isinstance(value, str):
            out.add_string(key, value)
        elif isinstance(value, float):
            out.add_float32(key, value)
        elif value is not None:
            out.add_uint32(key, value)
    out.add_token_list(tokens)
    out.add_token_merges(merges)
    out.add_token_types([3 if t in SPECIAL else 1 for t in tokens])

    def matrix(name: str, rows: int, columns: int, as_kind: str) -> None:
        values = random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        if as_kind == "F32":
            out.add_tensor(name, values)
        elif as_kind == "F16":
            out.add_tensor(name, values.astype(np.float16))
        else:
            as_type = gguf.GGMLQuantizationType[as_kind]
            out.add_tensor(name, gguf.quants.quantize(values, as_type), raw_dtype=as_type)

    q, kv = s["hidden"], s["hidden"] // s["heads"] * s["kv_heads"]
    shapes = {"attn_q": (q, q), "attn_k": (kv, q), "attn_v": (kv, q), "attn_output": (q, q),
              "ffn_gate": (s["ffn"], q), "ffn_up": (s["ffn"], q), "ffn_down": (q, s["ffn"])}  # fmt: skip
    names = {
        f"blk.{n}.{name}.weight": (*shape, kind) for n in range(s["layers"]) for name, shape in shapes.items()
    }
    names |= {"token_embd.weight": (len(tokens), q, "Q8_0")}
    if not tied:
        names |= {"output.weight": (len(tokens), q, "Q8_0")}
    names |= dict.fromkeys(add, (q, q, "F32"))
    for name, shape in names.items():
        if name not in drop:
            matrix(name, *shape)
    norms = [f"blk.{n}.{name}.weight" for n in range(s["layers"]) for name in ("attn_norm", "ffn_norm")]
    for name in [*norms, "output_norm.weight"]:
        if name not in drop:
            out.add_tensor(name, random.uniform(0.5, 1.5, q).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
