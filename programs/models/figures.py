"""The figures of a generation on wafers: times, cycles, busy shares, memory; a document and a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...fabric.chain import Chain
from ..layers import LayerPlan
from ..summary import duration
from .description import ModelConfig
from .generation import Generation
from .head_plan import HeadPlan

__all__ = ["SCHEMA", "document", "lines"]

SCHEMA = 1  # goes up when a key changes its meaning


def document(
    config: ModelConfig,
    plan: LayerPlan,
    shares: Sequence[int],
    head: HeadPlan | None,
    chain: Chain,
    made: Generation,
    text: str,
    host_s: float,
    threads: int,
) -> dict[str, Any]:
    """What `generate --json` prints: units in key names, everything that depends on the host under `host`.

    `shares`: layers on each wafer. Cycles of a layer are those of its wafer, divided by the layers there.
    """
    clock = plan.spec.clock_mhz
    requests = len(made.prompts)
    through = sum(map(len, made.prompts)) + made.made - requests  # items that passed all wafers
    cycles = [[stay.cycles for stay in stays[:through]] for stays in chain.stays]
    of_layers = [
        count / share for counts, share in zip(cycles, shares, strict=False) for count in counts
    ] or [0]
    of_head = cycles[-1] if head is not None else []
    token_us = chain.microseconds(1) * made.ticks_per_token
    return {
        "schema": SCHEMA,
        "end": made.end,
        "model": {
            "name": config.name,
            "layers": config.layers,
            "weights": plan.kind,
            "vocabulary": config.vocabulary,
        },
        "config": {
            "machine": plan.spec.name,
            "clock_mhz": clock,
            "grid_pes": list(plan.grid),
            "wafers": len(chain.wafers),
            "layers_of_wafer": list(shares),
            "requests": requests,
            "kv_capacity_tokens": plan.config.kv_capacity,
            "link_latency_ns": chain.links[0].spec.latency_ns,
            "link_bandwidth_gbit_s": chain.links[0].spec.bandwidth_gbit_s,
            "head": "host" if head is None else "wafer",
            "head_grid_pes": None if head is None else [head.cols, head.rows],
        },
        "prompt_ids": made.prompts[0],
        "token_ids": made.tokens[0],
        "request_token_ids": made.tokens,
        "text": text,
        "sim": {
            "first_token_us": chain.microseconds(made.first_tick),
            "token_us": token_us,
            "token_cycles": round(token_us * clock),
            "tokens_per_s": 1e6 / token_us if token_us else 0.0,
            "total_tokens_per_s": sum(_rates(made)) * chain.time.ticks_per_second,
            "arrival_us": [chain.microseconds(tick) for tick in made.ticks[0]],
            "layer_cycles_mean": float(np.mean(of_layers)),
            "layer_cycles_least": round(min(of_layers)),
            "layer_cycles_most": round(max(of_layers)),
            "layer_cycles_bound": plan.bound(len(made.prompts[0])),
            "head_cycles_mean": float(np.mean(of_head)) if of_head else None,
            "head_cycles_bound": None if head is None else head.product_cycles,
            "busy_share": chain.busy_share(end=made.last_tick or None),
            "sram_bytes_per_pe": plan.sram_bytes,
            "head_sram_bytes_per_pe": None if head is None else head.sram_bytes,
            "sram_bytes_of_pe": plan.spec.sram.bytes,
        },
        "host": {"run_s": round(host_s, 3), "threads": threads, "tokens": made.made},
    }


def _rates(made: Generation) -> list[float]:
    """Tokens per tick of every request, from its first token to its last."""
    return [(len(ticks) - 1) / (ticks[-1] - ticks[0]) for ticks in made.ticks if len(ticks) > 1]


def lines(told: dict[str, Any]) -> str:
    """The summary that `generate` prints after the text."""
    sim, config, model = told["sim"], told["config"], told["model"]
    columns, rows = config["grid_pes"]
    shares = [100 * share for share in sim["busy_share"]]
    passes = config["requests"] * len(told["prompt_ids"]) + max(
        0, told["host"]["tokens"] - config["requests"]
    )
    mean, bound = sim["layer_cycles_mean"], sim["layer_cycles_bound"]
    ends = "embedding and head on the host"
    if config["head"] == "wafer":
        ends = "the last one is the head, {} x {} PEs; embedding on the host".format(*config["head_grid_pes"])
    wafers = f"{config['wafers']} wafer{'s' * (config['wafers'] > 1)}"
    most = max(config["layers_of_wafer"])
    size = f"{columns} x {rows} PEs" if most == 1 else f"up to {most} regions of {columns} x {rows} PEs"
    out = [
        f"{model['name']}: {model['layers']} layers on {wafers} of {size} "
        f"({config['machine']}, {config['clock_mhz']:g} MHz); {ends}",
        f"{config['requests']} x " * (config["requests"] > 1)
        + f"{len(told['prompt_ids'])} prompt tokens, {len(told['token_ids'])} new ones, end: {told['end']}",
        f"first token after {duration(sim['first_token_us'])}",
    ]
    if sim["token_us"]:
        out.append(
            f"then {duration(sim['token_us'])} = {sim['token_cycles']:,} cycles per token: "
            f"{sim['tokens_per_s']:,.1f} tokens/s for one request"
            + (f", {sim['total_tokens_per_s']:,.1f} for all {config['requests']}" * (config["requests"] > 1))
        )
    out += [
        f"layer: {mean:,.0f} cycles per token ({sim['layer_cycles_least']:,} to "
        f"{sim['layer_cycles_most']:,}); "
        f"dequantising and multiply-adds alone are {bound:,} ({100 * bound / max(1, mean):.0f} %)",
        *([f"head: {sim['head_cycles_mean']:,.0f} cycles per token"] if sim["head_cycles_mean"] else []),
        f"wafers busy: {min(shares):.1f} to {max(shares):.1f} % of the time",
        f"SRAM: {sim['sram_bytes_per_pe']:,} of {sim['sram_bytes_of_pe']:,} bytes per PE, "
        f"KV cache for {config['kv_capacity_tokens']:,} tokens",
        f"host: {told['host']['run_s']:.1f} s, {told['host']['run_s'] / max(1, passes):.2f} s per token "
        f"({told['host']['threads']} threads)",
    ]
    return "\n".join(out)
