"""What a weight file describes: the sizes of a llama-like model, or all that is not supported at once."""

from __future__ import annotations

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
        if isinstance(found, kind) and not (kind is int and isinstance(found, bool)):
            return found
        self.problem(f"key {key} is missing" if found is None else f"key {key} has a {type(found).__name__}")
        return default

    def size(self, key: str) -> int:
        """A whole number above 0."""
        number = self.value(f"llama.{key}", int, 0)
        if number <= 0 and f"llama.{key}" in self.file.metadata and not self.problems:
            self.problem(f"key llama.{key} is {number}")
        return int(number)

    def error(self) -> WeightFileError:
        listed = "; ".join(self.problems)
        return WeightFileError(self.file.path, f"not supported: {listed}", help=HELP, category="unsupported")


def _sizes(reader: _Reader) -> dict[str, Any]:
    metadata = reader.file.metadata
    hidden, heads = reader.size("embedding_length"), reader.size("attention.head_count")
    by_division = hidden // heads if heads else 0
    kv_heads = metadata.get("llama.attention.head_count_kv", heads)
    if not isinstance(kv_heads, int) or kv_heads < 1 or heads % kv_heads:
        reader.problem("the number of KV heads is not one divisor of the number of heads")
        kv_heads = max(heads, 1)
    tokens = metadata.get("tokenizer.ggml.tokens")
    return {
        "name": str(metadata.get("general.name", "unnamed"))[:80],
        "layers": reader.size("block_count"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": metadata.get("llama.attention.key_length", by_division),
        "ffn": reader.size("feed_forward_length"),
        "vocabulary": len(tokens) if isinstance(tokens, list) else 0,
        "context": reader.size("context_length"),
        "rope_base": float(metadata.get("llama.rope.freq_base", 10_000.0)),
        "eps": float(reader.value("llama.attention.layer_norm_rms_epsilon", float, 1e-5)),
        "tied": "output.weight" not in reader.file,
    }


def _check_features(reader: _Reader, config: dict[str, Any]) -> None:
    """Things that other models of the family do and this one must not."""
    metadata = reader.file.metadata
    head_dim = config["head_dim"]
    if metadata.get("llama.attention.value_length", head_dim) != head_dim:
        reader.problem("keys and values of different lengths")
    turned = metadata.get("llama.rope.dimension_count", head_dim)
    if turned != head_dim:
        reader.problem(f"rotation of {turned} of {head_dim} dimensions")
    if metadata.get("llama.rope.scaling.type", "none") != "none" or "llama.rope.scale_linear" in metadata:
        reader.problem("scaled rotation")
    if metadata.get("llama.expert_count", 0):
        reader.problem(f"{metadata['llama.expert_count']} experts")
    if metadata.get("llama.attention.sliding_window", 0):
        reader.problem("sliding-window attention")
    for key in ("logit_scale", "residual_scale", "embedding_scale", "attention.scale"):
        if metadata.get(f"llama.{key}", 0):
            reader.problem(f"key llama.{key}")


def _check_tokenizer(reader: _Reader, config: dict[str, Any]) -> None:
    kind = reader.value("tokenizer.ggml.model", str, "gpt2")
    if kind != "gpt2":
        reader.problem(f'tokenizer "{ascii(kind)[1:-1][:40]}" is not byte-level BPE')
        return
    pre = reader.file.metadata.get("tokenizer.ggml.pre")
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
