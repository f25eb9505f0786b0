"""How a model lies on wafers and what its formulas expect: as a document and as a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...fabric.link import LinkSpec
from ..layers import LayerPlan, alternatives
from ..layers.llama_cycles import cycles_of_regions
from ..summary import duration
from .description import ModelConfig
from .head_plan import HeadPlan

__all__ = ["SCHEMA", "layout", "lines"]

SCHEMA = 1  # goes up when a key changes its meaning


def layout(
    config: ModelConfig, plan: LayerPlan, shares: Sequence[int], head: HeadPlan, link: LinkSpec
) -> dict[str, Any]:
    """What `plan --json` prints: units in key names. Cycles are the formulas', with an empty KV cache and a
    full one. `shares`: layers on each wafer; the fullest one counts where a wafer is meant."""
    most = max(shares)
    others = alternatives(plan.config, plan.spec, plan.kind)
    if plan.grid not in [other.grid for other in others]:
        others.append(plan)
    weights = (
        most
        * plan.cols
        * plan.rows
        * sum(matrix.stored_bytes(plan.kind) for matrix in plan.matrices.values())
    )
    hop = float(link.latency_s) * 1e6
    layer = plan.cycles(1) / plan.spec.clock_mhz
    head_us = head.product_cycles / plan.spec.clock_mhz
    wafer = cycles_of_regions(plan, most) / plan.spec.clock_mhz
    layers = sum(cycles_of_regions(plan, share) for share in shares) / plan.spec.clock_mhz
    token = layers + head_us + (len(shares) + 2) * hop
    return {
        "schema": SCHEMA,
        "model": {
            "name": config.name,
            "layers": config.layers,
            "hidden": config.hidden,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "ffn": config.ffn,
            "vocabulary": config.vocabulary,
            "weights": plan.kind,
            "weights_per_layer": plan.config.weights,
        },
        "machine": plan.spec.name,
        "wafers": len(shares) + 1,
        "layers_of_wafer": list(shares),
        "kv_capacity_tokens": plan.config.kv_capacity,
        "layer": _grid(plan),
        "head": {
            "grid_pes": [head.cols, head.rows],
            "pes": head.cols * head.rows,
            "sram_bytes_per_pe": head.sram_bytes,
            "cycles_bound": head.product_cycles,
        },
        "grids": [_grid(other) for other in sorted(others, key=lambda p: (p.cols * p.rows, p.cols))],
        "weight_bytes_per_wafer": weights,
        "load_us_per_wafer": weights * 8 / (link.bandwidth_gbit_s * 1e3),
        "expected": {
            "layer_us": layer,
            "wafer_us": wafer,
            "head_us_at_least": head_us,
            "hop_us": hop,
            "token_us": token,
            "tokens_per_s_one_request": 1e6 / token,
            "prompt_tokens_per_s": 1e6 / wafer,
        },
    }


def _grid(plan: LayerPlan) -> dict[str, Any]:
    cycles, bound = plan.cycles(1), plan.bound(1)
    return {
        "grid_pes": list(plan.grid),
        "pes": plan.cols * plan.rows,
        "sram_bytes_per_pe": plan.sram_bytes,
        "cycles_expected": cycles,
        "cycles_expected_full_cache": plan.cycles(plan.config.kv_capacity),
        "cycles_bound": bound,
        "bound_share": bound / cycles,
    }


def lines(told: dict[str, Any], plan: LayerPlan) -> str:
    """The page that `plan` prints."""
    model, expected = told["model"], told["expected"]
    columns, rows = told["layer"]["grid_pes"]
    least, most = min(told["layers_of_wafer"]), max(told["layers_of_wafer"])
    each = "one layer on each" if most == 1 else f"{most} layers side by side on each"
    if least < most:
        each = f"{least} or {most} layers side by side on each"
    of_layer = "" if most == 1 else " per layer"
    out = [
        f"{model['name']}: {model['layers']} layers, hidden {model['hidden']}, {model['heads']} heads on "
        f"{model['kv_heads']} KV heads, FFN {model['ffn']}, weights {model['weights']}",
        f"{told['wafers']} wafers ({told['machine']}): {each}, {columns} x {rows} PEs{of_layer}; "
        "the head on the last, {} x {} PEs; embedding on the host".format(*told["head"]["grid_pes"]),
        "",
        "SRAM of a PE:",
        plan.sram_map(),
        "",
        f"grids for a KV cache of {told['kv_capacity_tokens']:,} tokens; cycles per token and layer by the "
        "formulas, with an empty and a full cache, and the bound of dequantising and multiply-adds alone:",
        "  columns x rows    PEs  bytes per PE   cycles     full    bound   share",
    ]
    for grid in told["grids"]:
        mark = " <" if grid["grid_pes"] == told["layer"]["grid_pes"] else ""
        size = "{} x {}".format(*grid["grid_pes"])
        cycles = [grid[f"cycles_{name}"] for name in ("expected", "expected_full_cache", "bound")]
        out.append(
            f"{size:>16}{grid['pes']:>7,}{grid['sram_bytes_per_pe']:>14,}"
            + "".join(f"{count:>9,}" for count in cycles)
            + f"{100 * grid['bound_share']:>6.0f} %{mark}"
        )
    out += [
        "",
        f"a token: {model['layers']} layers of {duration(expected['layer_us'])}, a head of at least "
        f"{duration(expected['head_us_at_least'])} and {told['wafers'] + 1} hops of "
        f"{duration(expected['hop_us'])} = {duration(expected['token_us'])}, "
        f"{expected['tokens_per_s_one_request']:,.0f} tokens/s for one request; "
        f"a prompt flows at {expected['prompt_tokens_per_s']:,.0f} tokens/s",
        f"weights: {told['weight_bytes_per_wafer']:,} bytes per wafer{' at most' * (least < most)}, "
        f"{duration(told['load_us_per_wafer'])} to load over its link",
    ]
    return "\n".join(out)
