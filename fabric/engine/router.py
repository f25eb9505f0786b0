"""Routers: channels that follow their input as a stream, and arbiters that decide link by link in time
order.

A stream channel (one input at a time, links of its own) needs to know only what arrives, never what has not
arrived, so it runs ahead. An arbiter decides at calendar time, when everything that could compete is known.
"""

from __future__ import annotations

import numpy as np

from ..outcome import FaultCode
from .events import schedule, wake
from .jit import jit
from .pipes import RESERVE, enter, first_word, is_control, leave, room, visible
from .state import NEVER

RAMP = 4
BURST_GAP = (
    4  # cycles without a wavelet that do not end a burst: shorter notes, at worst a link arbitrated in vain
)
NAMES_A_TASK = np.uint32(1 << 29)
BAD_COMMAND = int(FaultCode.BAD_COMMAND)


@jit
def targets(s, c, p):
    """Mask of the outputs that the first wavelet of pipe p needs: a control wavelet without a task needs no
    ramp."""
    channel = s.channels[c]
    mask = s.routes[channel.route].outputs[channel.position]
    if mask >> RAMP & 1 and is_control(s, p) and not first_word(s, p) & NAMES_A_TASK:
        mask ^= 1 << RAMP
    return mask


@jit
def ready_cycle(s, c, p):
    """First cycle in which the first wavelet of pipe p could leave through channel c, links apart; NEVER if
    unknown."""
    cycle = visible(s, p)
    if cycle == NEVER:
        return NEVER
    channel = s.channels[c]
    cycle = max(cycle, channel.free)
    mask = targets(s, c, p)
    for port in range(5):
        if mask >> port & 1:
            cycle = max(cycle, room(s, np.int64(s.channel_out[c, port])))
    return cycle


@jit
def pass_on(s, c, p, cycle):
    """Move the first wavelet of pipe p to all its outputs at `cycle` and execute its command if it is one
    for this router."""
    channel = s.channels[c]
    route = s.routes[channel.route]
    mask = targets(s, c, p)
    control = is_control(s, p)
    word = leave(s, p, cycle)
    position = channel.position
    if control and route.positions > 1:
        command = word & 3
        if command == 3:
            record_router_fault(s, channel.router, cycle, word, mask)
            for port in range(5):
                if mask >> port & 1 and s.channel_watch[c, port] >= 0:
                    cross(s, np.int64(s.channel_watch[c, port]), cycle)  # arbitration may have delayed it
            channel.free = NEVER
            return
        elif command == 2:
            position = np.int8(0)
        elif command == 1:
            if position + 1 < route.positions:
                position = np.int8(position + 1)
            elif route.ring:
                position = np.int8(0)
        if route.pop:
            word = np.uint32(word & np.uint32(0xFFFF0000) | (word & np.uint32(0xFFFF)) >> np.uint32(2))
    for port in range(5):
        if mask >> port & 1:
            enter(s, np.int64(s.channel_out[c, port]), np.uint32(word), np.int64(control), cycle)
            if s.channel_watch[c, port] >= 0:
                cross(s, np.int64(s.channel_watch[c, port]), cycle)
    channel.free = cycle + 1
    channel.position = position


@jit
def cross(s, w, cycle):
    """Note that a channel's wavelet crosses a shared link at `cycle`; contention.py looks for others in
    between."""
    watch = s.watches[w]
    if cycle > watch.last + BURST_GAP:
        if watch.last >= 0:
            run = s.run[0]
            k = run.crossings
            s.crossing_watch[k] = w
            s.crossing_first[k] = watch.first
            s.crossing_last[k] = watch.last
            run.crossings += 1
            if run.crossings + RESERVE >= len(s.crossing_watch):
                run.budget = -1  # back to Python, which looks at them and makes room
        watch.first = cycle
    watch.last = cycle


@jit
def record_router_fault(s, router, cycle, word, links):
    """A control wavelet with a command that does not exist. Of several in one router and cycle the one
    counts whose first output link comes first in the order of arbitration; a router's fault comes before
    its PE's."""
    run = s.run[0]
    order = np.int64(links & -links) if links else np.int64(1 << RAMP + 1)
    first = cycle < run.fault_cycle or (cycle == run.fault_cycle and router < run.fault_pe)
    if cycle == run.fault_cycle and router == run.fault_pe:
        first = run.fault_code != BAD_COMMAND or order < run.fault_order
    if first:
        run.fault_order = order
        run.fault_cycle = cycle
        run.fault_pe = router
        run.fault_code = BAD_COMMAND
        run.fault_pc = -1
        run.fault_argument = word
        run.limit = min(run.limit, cycle + 1)


@jit
def _copy_data(s, c, p):
    """The fast path of a channel with one position: copy data wavelets from pipe p to its outputs, as many
    as are known.

    Stops at a control wavelet and at whatever has to be waited for; the caller looks at what comes then.
    """
    channel = s.channels[c]
    run = s.run[0]
    q = s.pipes[p]
    wavelets = np.int64(q.count)
    for port in range(5):
        out = s.channel_out[c, port]
        if out >= 0:
            o = s.pipes[out]
            if o.to_host:
                return  # the host keeps a list; not worth a second loop
            wavelets = min(wavelets, np.int64(o.capacity - o.count))
    slot, end, reverse = q.base + q.tail, q.base + q.capacity, np.int64(q.reverse)
    free, limit = max(channel.free, q.free), run.limit
    done = np.int64(0)
    while done < wavelets:
        time = s.ring_time[slot]
        if time & 1:
            break
        cycle = max(time >> 1, free)
        for port in range(5):
            out = s.channel_out[c, port]
            if out >= 0:
                o = s.pipes[out]
                cycle = max(cycle, s.ring_time[o.base + o.head])
        if cycle >= limit:
            break
        word = s.ring_value[slot]
        s.ring_time[slot] = cycle + reverse
        slot += 1
        if slot == end:
            slot = q.base
        for port in range(5):
            out = s.channel_out[c, port]
            if out >= 0:
                o = s.pipes[out]
                place = o.base + o.head
                s.ring_value[place] = word
                s.ring_time[place] = (cycle + o.latency) << 1
                o.head = o.head + 1 if o.head + 1 < o.capacity else 0
                watch = s.channel_watch[c, port]
                if watch >= 0:
                    if cycle <= s.watches[watch].last + BURST_GAP:
                        s.watches[watch].last = cycle
                    else:
                        cross(s, np.int64(watch), cycle)
        free = cycle + 1
        done += 1
    if not done:
        return
    channel.free = free
    q.tail = slot - q.base
    q.count -= done
    if q.producer_waits:
        q.producer_waits = 0
        wake(s, np.int64(q.producer))
    for port in range(5):
        out = s.channel_out[c, port]
        if out >= 0:
            o = s.pipes[out]
            o.count += done
            o.entered += done
            if o.consumer_waits:
                o.consumer_waits = 0
                wake(s, np.int64(o.consumer))


@jit
def run_channel(s, c):
    """A stream channel: pass on as many wavelets as are known to be able to leave."""
    channel = s.channels[c]
    if s.routes[channel.route].positions == 1 and s.run[0].budget >= 0:
        for port in range(5):
            if s.channel_in[c, port] >= 0:
                _copy_data(s, c, np.int64(s.channel_in[c, port]))
    while True:
        inputs = s.routes[channel.route].inputs[channel.position]
        port = 0
        while not inputs >> port & 1:
            port += 1
        p = np.int64(s.channel_in[c, port])
        if p < 0:
            return
        cycle = ready_cycle(s, c, p)
        if cycle == NEVER:
            wait_for(s, c, p)
            return
        if cycle >= s.run[0].limit:
            s.run[0].cut = 1
            return
        if s.run[0].budget < 0:
            schedule(s, s.machine[0].first_channel + c, s.run[0].now)
            return
        if cycle > s.run[0].now + s.machine[0].livelock:
            # Perhaps a circle of streams, which would never end: the calendar sees that nobody else acts.
            schedule(s, s.machine[0].first_channel + c, cycle)
            return
        pass_on(s, c, p, cycle)


@jit
def wait_for(s, c, p):
    """Ask to be called when what the first wavelet of pipe p lacks is there."""
    if s.pipes[p].count == 0:
        s.pipes[p].consumer_waits = 1
        return
    mask = targets(s, c, p)
    for port in range(5):
        if mask >> port & 1:
            out = np.int64(s.channel_out[c, port])
            if room(s, out) == NEVER:
                s.pipes[out].producer_waits = 1


@jit
def plan_arbiter(s, a, item):
    """Put the arbiter into the calendar for the first cycle in which one of its wavelets could leave."""
    arbiter = s.arbiters[a]
    earliest = NEVER
    for c in range(arbiter.first, arbiter.first + arbiter.count):
        channel = s.channels[c]
        inputs = s.routes[channel.route].inputs[channel.position]
        for port in range(5):
            if inputs >> port & 1 and s.channel_in[c, port] >= 0:
                p = np.int64(s.channel_in[c, port])
                cycle = ready_cycle(s, c, p)
                if cycle == NEVER:
                    wait_for(s, c, p)
                else:
                    # A further arrival can only make this router busier, never this wavelet ready sooner.
                    earliest = min(earliest, cycle)
                    s.pipes[p].consumer_waits = 0
    if earliest < NEVER:
        schedule(s, item, max(earliest, arbiter.free))


@jit
def run_arbiter(s, a, item, cycle):
    """Grant links at calendar time `cycle`: each output link in order takes its first candidate in
    round-robin order."""
    arbiter = s.arbiters[a]
    claimed = 0
    for link in range(5):
        if claimed >> link & 1:
            continue
        best_c = np.int64(-1)
        best_p = np.int64(-1)
        best_port = np.int64(0)
        best_order = np.int64(1 << 20)
        for c in range(arbiter.first, arbiter.first + arbiter.count):
            channel = s.channels[c]
            if channel.free > cycle:
                continue
            inputs = s.routes[channel.route].inputs[channel.position]
            for port in range(5):
                if not inputs >> port & 1:
                    continue
                p = np.int64(s.channel_in[c, port])
                if p < 0 or visible(s, p) > cycle:
                    continue
                mask = targets(s, c, p)
                if mask & claimed or not mask >> link & 1:
                    continue
                free = True
                for out in range(5):
                    if mask >> out & 1 and room(s, np.int64(s.channel_out[c, out])) > cycle:
                        free = False
                if not free:
                    continue
                order = port * 24 + channel.colour - arbiter.last[link] - 1
                if order < 0:
                    order += 120
                if order < best_order:
                    best_order = order
                    best_c = c
                    best_p = p
                    best_port = port
        if best_c >= 0:
            mask = targets(s, best_c, best_p)
            claimed |= mask
            for out in range(5):
                if mask >> out & 1:
                    arbiter.last[out] = best_port * 24 + s.channels[best_c].colour
            pass_on(s, best_c, best_p, cycle)
    drop_taskless(s, a, cycle)
    arbiter.free = cycle + 1
    s.run[0].budget -= 1
    plan_arbiter(s, a, item)


@jit
def drop_taskless(s, a, cycle):
    """Control wavelets whose only output was the ramp and that name no task end here."""
    arbiter = s.arbiters[a]
    for c in range(arbiter.first, arbiter.first + arbiter.count):
        channel = s.channels[c]
        inputs = s.routes[channel.route].inputs[channel.position]
        for port in range(5):
            if inputs >> port & 1 and s.channel_in[c, port] >= 0:
                p = np.int64(s.channel_in[c, port])
                if visible(s, p) <= cycle and targets(s, c, p) == 0 and channel.free <= cycle:
                    pass_on(s, c, p, cycle)
