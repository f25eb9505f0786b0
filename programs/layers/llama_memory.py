"""What lies in the SRAM of every PE of a llama layer, in order, with the bytes it takes."""

from __future__ import annotations

from .llama_plan import SUMS, LayerPlan, Store

__all__ = ["SCALARS", "STATE_SCALARS", "stores"]

SCALARS = ("position", "tokens", "turn")  # of a sequence: tokens so far; in this PE; until this row keeps one
STATE_SCALARS = len(SCALARS)
_BYTES = {"i32": 4, "f32": 4, "f16": 2}


def stores(plan: LayerPlan) -> tuple[Store, ...]:
    """The symbols of a PE; machine.md §2 has the bank rules that `align` and the gap in front of x serve."""
    heads, dims, tokens = plan.config.queries, plan.dims, plan.capacity
    half = dims // 2
    matrices = plan.matrices.values()
    gathered = plan.rows * plan.share
    sums = max(2 * gathered, *(m.rows for m in matrices))
    found = [
        _scalar("column_role", "0 in the first row, 1 between, 2 in the last row"),
        _scalar("row_role", "0 in the first column, 1 between, 2 in the last column"),
        _scalar("group_role", "the same among the columns that share a KV head; 3 outside attention"),
        _scalar("gate_at", "byte offset of this row's share of the FFN sums"),
        _scalar("behind", "gated values from the rows in the north"),
        *_message(plan),
        *_states(plan),
        _plain("attn_norm", "f32", (plan.tile,), "norm weights of this row"),
        _plain("ffn_norm", "f32", (plan.tile,), "norm weights of this row"),
        _plain("residual", "f32", (plan.tile,), "the residual stream in f32"),
        _plain("wide", "f32", (plan.tile,), "the same, being normalised"),
        _plain("squares", "f32", (SUMS,), "sums of squares"),
        _plain("square", "f32", (1,), "their sum"),
        _plain("step", "f32", (2, half), "cos, sin of the angles from one position to the next"),
        _plain("turned", "f32", (2, half), "the next position's cos, sin"),
        _plain("rotated", "f32", ((heads + 1) * dims,), "queries and key after RoPE"),
        _plain("largest", "f32", (heads,), "largest score of a head"),
        _plain("mixed", "f32", (heads * dims + heads,), "weighted values, then sums of weights"),
        _plain("gate", "f32", (plan.share,), "the gate of this PE's share"),
        _plain("gated", "f16", (plan.share,), "gated values of this PE's share"),
        *_operand("x", plan.tile, "normalised inputs"),
        *_operand("query", heads * dims, "queries of this column"),
        *_operand("context", plan.context, "attention outputs of this column"),
        *_operand("neurons", gathered, "gated FFN values of this column"),
        _plain("sums", "f32", (sums,), "sums of a GEMV", align=True),
        *_cache(plan, "keys", (dims, tokens), "KV cache: keys, by dimension"),
        *_cache(plan, "values", (tokens, dims), "KV cache: values, by token"),
        _plain("scores", "f32", (heads, tokens), "scores of this row's tokens", align=True),
        _plain("weights", "f16", (heads, tokens), "their softmax weights", align=True),
    ]
    if plan.kind == "f16":
        for m in matrices:
            found.append(_plain(f"w_{m.name}", "f16", (m.rows, m.pitch), f"weights of {m.name}", align=True))
        return tuple(found)
    buffer = max(m.slice * m.pitch for m in matrices)
    found.append(_plain("slice", "f16", (buffer,), "weights that are being multiplied", align=True))
    for m in matrices:
        wide = f"{plan.kind}[{m.rows}, {m.inputs}] group {m.group} export"
        found.append(Store(f"w_{m.name}", wide, m.stored_bytes(plan.kind), f"weights of {m.name}"))
        part = f"{plan.kind}[{m.slice}, {m.inputs}] group {m.group} at w_{m.name}"
        found.append(Store(f"part_{m.name}", part, 0, ""))
        found.append(Store(f"slice_{m.name}", f"f16[{m.slice}, {m.pitch}] at slice", 0, ""))
    return tuple(found)


def _message(plan: LayerPlan) -> list[Store]:
    """The residual stream as it comes and goes; with several requests behind the request's number."""
    block = _plain("message", "f16", (plan.lane,), "the residual stream of this row")
    head = 2 * (plan.lane - plan.tile)  # bytes
    number = [Store("request", "i16 at message", 0, "")] if head else []
    return [block, *number, Store("hidden", f"f16[{plan.tile}] at message + {head} export", 0, "")]


def _states(plan: LayerPlan) -> list[Store]:
    """What a sequence is besides its keys and values; `states` holds those of all requests."""
    words = STATE_SCALARS + 3 * (plan.dims // 2)
    found = [_plain("state", "i32", (words,), "position, tokens here, turn, rotation")]
    found += [Store(name, f"i32 at state + {4 * k} export", 0, "") for k, name in enumerate(SCALARS)]
    rotation = f"f32[3, {plan.dims // 2}] at state + {4 * STATE_SCALARS} export"
    found.append(Store("rotation", rotation, 0, ""))
    if plan.requests > 1:
        found.append(_plain("states", "i32", (plan.requests, words), "the state of every request"))
    return found


def _cache(plan: LayerPlan, name: str, shape: tuple[int, ...], purpose: str) -> list[Store]:
    """A cache for every request; `name` is that of request 0."""
    if plan.requests == 1:
        return [_plain(name, "f16", shape, purpose, align=True)]
    whole = _plain(f"{name}_of_all", "f16", (plan.requests, *shape), purpose, align=True)
    return [whole, Store(name, f"f16[{shape[0]}, {shape[1]}] at {name}_of_all export", 0, "")]


def _scalar(name: str, purpose: str, export: bool = False) -> Store:
    return Store(name, "i32 export = 0" if export else "i32 = 0", 4, purpose)


def _plain(name: str, kind: str, shape: tuple[int, ...], purpose: str, align: bool = False) -> Store:
    """Numbers that start as zeros; up to 31 bytes are lost in front of an aligned one."""
    count = 1
    for extent in shape:
        count *= extent
    text = f"{kind}[{', '.join(map(str, shape))}]" + " align 32" * align + " export = 0"
    return Store(name, text, count * _BYTES[kind] + 31 * align, purpose)


def _operand(name: str, count: int, purpose: str) -> list[Store]:
    """A vector that meets weights: 4 bytes behind a multiple of 32, in a bank of the other parity."""
    block = _plain(f"{name}_block", "f16", (count + SUMS // 4,), purpose, align=True)
    return [block, Store(name, f"f16[{count}] at {name}_block + 4 export", 0, "")]
