"""What a weight file describes: the sizes of a llama-like model, or all that is not supported at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..weights.weight_file import WeightFile, WeightFileError
from .tokenizer import PRE_TOKENIZERS

if TYPE_CHECKING:
    from ..layers.llama_plan import LayerConfig

__all__ = ["ModelConfig", "describe_model"]

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
NORMS = ("attn_norm", "ffn_norm")
OUTSIDE = ("token_embd.weight", "output_norm.weight", "output.weight")
WEIGHT_KINDS = {"Q4_0": "q4", "Q4_1": "q4", "Q8_0": "q8", "F16": "f16", "F32": "f16", "BF16": "f16"}
MOST = 1 << 31  # of any size
HELP = "a GGUF file of the llama architecture in Q4_0, Q4_1, Q8_0 or F16 is needed"


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model, the same in every layer. `kind`: how weights are multiplied (q4, q8 or f16)."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    context: int  # tokens the model was made for
    rope_base: float
    eps: float
    tied: bool  # the head is the embedding
    kind: str
    head_kind: str

    def layer(self, kv_capacity: int) -> LayerConfig:
        """The sizes of one layer whose KV cache holds `kv_capacity` tokens."""
        from ..layers.llama_plan import LayerConfig

        return LayerConfig(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            rope_base=self.rope_base,
            eps=self.eps,
            kv_capacity=kv_capacity,
        )


def describe_model(file: WeightFile) -> ModelConfig:
    """The model of a GGUF file. Raises WeightFileError (unsupported) with all that stands in the way."""
    reader = _Reader(file)
    architecture = reader.value("general.architecture", str, "")
    if architecture != "llama":
        reader.problem(f'architecture "{ascii(architecture)[1:-1][:40]}" is not llama')
        raise reader.error()
    config = _sizes(reader)
    _check_features(reader, config)
    _check_tokenizer(reader, config)
    kind = _check_tensors(reader, config)
    if reader.problems:
        raise reader.error()
    head = file.tensor("token_embd.weight" if config["tied"] else "output.weight").kind
    return ModelConfig(**config, kind=kind, head_kind=WEIGHT_KINDS[head])


class _Reader:
    """Reads metadata and collects what is wrong."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def value(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """A metadata value, or the default and a problem if it is absent or of another type."""
        found = self.file.metadata.get(key)
        if isinstance(found, kind) and not isinstance(found, bool):
            return found
        self.problem(f"key {key} is missing" if found is None else f"key {key} has a {type(found).__name__}")
        return default

    def optional(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """A metadata value that may be absent."""
        return self.value(key, kind, default) if key in self.file.metadata else default

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number above 0 of `llama.{key}`; 1 and a problem if it is none."""
        full = f"llama.{key}"
        number = self.value(full, int, None) if default is None else self.optional(full, int, default)
        if number is not None and not 0 < number < MOST:
            self.problem(f"key {full} is {number}")
        return number if number is not None and 0 < number < MOST else 1

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite real number above 0 of `llama.{key}`."""
        full, kinds = f"llama.{key}", (float, int)
        number = self.value(full, kinds, 1.0) if default is None else self.optional(full, kinds, default)
        if not (math.isfinite(number) and number > 0):
            self.problem(f"key {full} is {number}")
            return 1.0
        return float(number)

    def error(self) -> WeightFileError:
        listed = "; ".join(self.problems)
        return WeightFileError(self.file.path, f"not supported: {listed}", help=HELP, category="unsupported")


def _sizes(reader: _Reader) -> dict[str, Any]:
    metadata = reader.file.metadata
    hidden, heads = reader.size("embedding_length"), reader.size("attention.head_count")
    kv_heads = reader.size("attention.head_count_kv", heads)
    if heads % kv_heads:
        reader.problem(f"{heads} heads do not share {kv_heads} KV heads evenly")
    head_dim = reader.size("attention.key_length", max(1, hidden // heads))
    if head_dim % 4:
        reader.problem(f"heads of {head_dim} dimensions, not a multiple of 4")
    tokens = metadata.get("tokenizer.ggml.tokens")
    return {
        "name": str(reader.optional("general.name", str, "unnamed"))[:80],
        "layers": reader.size("block_count"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": reader.size("feed_forward_length"),
        "vocabulary": len(tokens) if isinstance(tokens, list) else 0,
        "context": reader.size("context_length"),
        "rope_base": reader.positive("rope.freq_base", 10_000.0),
        "eps": reader.positive("attention.layer_norm_rms_epsilon"),
        "tied": "output.weight" not in reader.file,
    }


def _check_features(reader: _Reader, config: dict[str, Any]) -> None:
    """Things that other models of the family do and this one must not."""
    head_dim = config["head_dim"]
    if reader.optional("llama.attention.value_length", int, head_dim) != head_dim:
        reader.problem("keys and values of different lengths")
    turned = reader.optional("llama.rope.dimension_count", int, head_dim)
    if turned != head_dim:
        reader.problem(f"rotation of {turned} of {head_dim} dimensions")
    scaling = reader.optional("llama.rope.scaling.type", str, "none")
    if scaling != "none" or "llama.rope.scale_linear" in reader.file.metadata:
        reader.problem("scaled rotation")
    experts = reader.optional("llama.expert_count", int, 0)
    if experts:
        reader.problem(f"{experts} experts")
    if reader.optional("llama.attention.sliding_window", int, 0):
        reader.problem("sliding-window attention")
    for key in ("logit_scale", "residual_scale", "embedding_scale", "attention.scale"):
        if reader.optional(f"llama.{key}", (int, float), 0):
            reader.problem(f"key llama.{key}")


def _check_tokenizer(reader: _Reader, config: dict[str, Any]) -> None:
    kind = reader.value("tokenizer.ggml.model", str, "gpt2")
    if kind != "gpt2":
        reader.problem(f'tokenizer "{ascii(kind)[1:-1][:40]}" is not byte-level BPE')
        return
    pre = reader.value("tokenizer.ggml.pre", str, PRE_TOKENIZERS[0])
    if pre not in PRE_TOKENIZERS:
        reader.problem(f"tokenizer splits text by {ascii(pre)[:40]}, known: {', '.join(PRE_TOKENIZERS)}")
    for key, wanted in (("tokens", list), ("merges", list), ("eos_token_id", int)):
        reader.value(f"tokenizer.ggml.{key}", wanted, None)


def _check_tensors(reader: _Reader, config: dict[str, Any]) -> str:
    """Names, shapes and kinds of all tensors; the kind of the layers' weights."""
    hidden, ffn = config["hidden"], config["ffn"]
    q, kv = config["heads"] * config["head_dim"], config["kv_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config["vocabulary"], hidden),
        "output_norm.weight": (hidden,),
    }
    if not config["tied"]:
        shapes["output.weight"] = (config["vocabulary"], hidden)
    inner = dict(zip(MATRICES, ((q, hidden), (kv, hidden), (kv, hidden), (hidden, q)), strict=False))
    inner |= {"ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    matrices = set()
    for layer in range(config["layers"] if config["layers"] <= len(reader.file.names) else 0):
        for name in (*MATRICES, *NORMS):
            full = f"blk.{layer}.{name}.weight"
            shapes[full] = inner.get(name, (hidden,))
            if name in MATRICES:
                matrices.add(full)
    names = set(reader.file.names)
    _listed(reader, "missing tensors", sorted(shapes.keys() - names))
    _listed(reader, "tensors that are not used", sorted(names - shapes.keys()))
    kinds: dict[str, str] = {}
    wrong, unknown = [], []
    for name in sorted(shapes.keys() & names):
        tensor = reader.file.tensor(name)
        if tensor.shape != shapes[name]:
            wrong.append(f"{name} {'x'.join(map(str, tensor.shape))}")
        if tensor.kind not in WEIGHT_KINDS:
            unknown.append(f"{name} {tensor.kind}")
        elif name in matrices:
            kinds.setdefault(WEIGHT_KINDS[tensor.kind], name)
    _listed(reader, "tensors of another shape", wrong)
    _listed(reader, "tensors of kinds that cannot be multiplied", unknown)
    if len(kinds) > 1:
        examples = ", ".join(f"{name} as {kind}" for kind, name in sorted(kinds.items()))
        reader.problem(f"layers with weights of several kinds ({examples})")
    return next(iter(kinds), "q4")


def _listed(reader: _Reader, what: str, names: list[str]) -> None:
    """One problem for any number of tensors."""
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        reader.problem(f"{what}: {', '.join(ascii(n)[1:-1][:60] for n in names[:4])}{more}")
