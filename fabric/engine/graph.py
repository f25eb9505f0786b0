"""Elaboration: routes become pipes, channels and arbiters.

A stage (docs/machine.md §3) that only feeds a router which can do nothing but pass its wavelets on is
joined with the next one; a maximal run of joined stages is one pipe. A router's colour that forks,
switches, merges or shares a link stays as a channel. Works on whole grids with NumPy; never loops over PEs
in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...isa.program import Port, Program
from ..spec import MachineSpec
from .jit import jit
from .stages import Elaborator, Stages


@dataclass
class Graph:
    """What graph elaboration hands to the loader."""

    stages: Stages
    pipe_first: np.ndarray  # (pipes,) int32 stage
    pipe_last: np.ndarray
    pipe_latency: np.ndarray
    pipe_capacity: np.ndarray
    pipe_reverse: np.ndarray
    pipe_of_last: np.ndarray  # (stages,) int32: pipe that ends with this stage, -1
    pipe_of_first: np.ndarray  # (stages,) int32
    channel_router: np.ndarray  # (channels,) int32, sorted by router
    channel_colour: np.ndarray
    channel_route: np.ndarray
    channel_arbitrated: np.ndarray  # bool
    channel_watched: (
        np.ndarray
    )  # (channels, 5) bool: output links that other channels use too, not arbitrated
    shared: np.ndarray  # (n, 5) bool: output links that several channels, or several inputs of one, can want
    channel_in: np.ndarray  # (channels, 5) int32 pipes
    channel_out: np.ndarray
    pe_in: np.ndarray  # (n, 8) int32 pipes
    pe_out: np.ndarray
    source_pipe: np.ndarray  # (input lanes,) int32
    sink_pipe: np.ndarray  # (output lanes,) int32


def elaborate(spec: MachineSpec, program: Program, control: set[int], contended: np.ndarray) -> Graph:
    """Build the graph. `control`: colours that can carry control wavelets (those keep a channel before the
    ramp).

    `contended` (n, 5) bool: shared output links that are arbitrated wavelet by wavelet. The other shared
    links are watched: no channel that uses one is joined into a pipe, and the engine notes when each of
    them crosses it.

    Raises Rejected (category route) for a route that leads nowhere.
    """
    e = Elaborator(spec, program)
    e.links()
    e.ramps()
    ins, outs = e.edges()
    stages = (
        Stages(*(np.concatenate(c) if e.rows else np.zeros(0, np.int32) for c in zip(*e.rows, strict=True)))
        if e.rows
        else _no_stages()
    )

    # A link is shared if several colours, or several inputs of one (a merge), can want it.
    wants = np.zeros((e.n, 5), np.int16)
    merged = np.zeros((e.n, 5), bool)
    for grid in e.grid.values():
        wants += e.bits.candidates[grid]
        merged |= e.bits.candidates[grid] > 1
    shared = wants > 1
    arbitrated_link = shared & (contended | merged)
    shared_mask, arbitrated_mask = _port_masks(shared), _port_masks(arbitrated_link)

    follows = np.full(e.count, -1, np.int32)
    channels: list[tuple[np.ndarray, ...]] = []
    for c, grid in e.grid.items():
        into = e.into[c]
        routers = np.flatnonzero((grid > 0) & (into >= 0).any(axis=1))
        if not len(routers):
            continue
        rid = grid[routers]
        after = e.outputs_of(c, routers)
        arbitrated = (e.bits.outputs[rid] & arbitrated_mask[routers]) != 0
        alone = (e.bits.outputs[rid] & shared_mask[routers]) == 0
        to_ramp = (e.bits.outputs[rid] >> Port.RAMP & 1).astype(bool)
        joins = e.bits.single[rid] & alone & ~(to_ramp & (c in control))
        j = np.flatnonzero(joins)
        in_port = np.log2(np.maximum(e.bits.inputs[rid[j]], 1)).astype(np.int64)
        before = into[routers[j], in_port]
        fed = before >= 0
        follows[before[fed]] = after[j].max(axis=1)[fed]
        k = np.flatnonzero(~joins)
        allowed = (e.bits.inputs[rid[k]][:, None] >> np.arange(5) & 1).astype(bool)
        channels.append(
            (
                routers[k].astype(np.int32),
                np.full(len(k), c, np.int8),
                rid[k].astype(np.int32),
                arbitrated[k],
                np.where(allowed, into[routers[k]], -1),
                after[k],
            )
        )
    stages.follows = follows
    first, last, latency, capacity, reverse = _join(follows, stages.latency, stages.capacity)
    of_last = np.full(e.count + 1, -1, np.int32)
    of_first = np.full(e.count + 1, -1, np.int32)
    of_last[last] = np.arange(len(last))
    of_first[first] = np.arange(len(first))
    if channels:
        router, colour, route, arb, chan_in, chan_out = (
            np.concatenate(c) for c in zip(*channels, strict=True)
        )
        order = np.lexsort(
            (colour, ~arb, router)
        )  # arbitrated channels of a router stand together, by colour
        router, colour, route, arb, chan_in, chan_out = (
            a[order] for a in (router, colour, route, arb, chan_in, chan_out)
        )
    else:
        router, colour, route, arb = (
            np.zeros(0, np.int32),
            np.zeros(0, np.int8),
            np.zeros(0, np.int32),
            np.zeros(0, bool),
        )
        chan_in = chan_out = np.zeros((0, 5), np.int32)
    pe_in = _queue_pipes(e, program.in_colour, e.down, of_last)
    pe_out = _queue_pipes(e, program.out_colour, {c: a[:, Port.RAMP] for c, a in e.into.items()}, of_first)
    watched = (e.bits.outputs[route][:, None] >> np.arange(5) & 1).astype(bool) & (shared & ~arbitrated_link)[
        router
    ]
    return Graph(
        stages,
        first,
        last,
        latency,
        capacity,
        reverse,
        of_last,
        of_first,
        router,
        colour,
        route,
        arb,
        watched,
        shared,
        of_last[chan_in],
        of_first[chan_out],
        pe_in,
        pe_out,
        of_first[np.asarray(ins, np.int64)],
        of_last[np.asarray(outs, np.int64)],
    )


def _port_masks(links: np.ndarray) -> np.ndarray:
    """(n,) uint8: bit p set where links[:, p]."""
    return (links * (1 << np.arange(5))).sum(axis=1).astype(np.uint8)


def _no_stages() -> Stages:
    return Stages(*(np.zeros(0, np.int32) for _ in range(9)))


def _queue_pipes(
    e: Elaborator, bound: np.ndarray, stage_of: dict[int, np.ndarray], pipe_of: np.ndarray
) -> np.ndarray:
    """(n, 8) int32: pipe behind each queue, -1 where it is not bound or no route touches it."""
    flat = bound.reshape(e.n, -1)
    result = np.full(flat.shape, -1, np.int32)
    for c, stages in stage_of.items():
        pe, queue = np.nonzero(flat == c)
        result[pe, queue] = pipe_of[stages[pe]]  # index -1 is the spare last entry: -1
    return result


@jit
def _join(follows, latency, capacity):
    """Walk every run of joined stages once. A ring of them has no beginning: nothing can enter it."""
    n = len(follows)
    has_before = np.zeros(n, np.bool_)
    for i in range(n):
        if follows[i] >= 0:
            has_before[follows[i]] = True
    count = 0
    for i in range(n):
        if not has_before[i]:
            count += 1
    first = np.empty(count, np.int32)
    last = np.empty(count, np.int32)
    total = np.zeros(count, np.int32)
    room = np.zeros(count, np.int32)
    steps = np.zeros(count, np.int32)
    k = 0
    for i in range(n):
        if has_before[i]:
            continue
        first[k] = i
        stage = np.int32(i)
        while True:
            total[k] += latency[stage]
            room[k] += capacity[stage]
            steps[k] += 1
            last[k] = stage
            if follows[stage] < 0:
                break
            stage = follows[stage]
        k += 1
    return first, last, total, room, steps
