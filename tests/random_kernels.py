"""Random code for one PE: sends and receives what its routes ask for, and computes in between.

Code is made of actions (a vector instruction with its descriptors, a loop, a handful of scalar instructions)
that are dealt out to tasks. Most of it makes sense on purpose, so that runs get far; a little is anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from random_routes import Choices
from random_vectors import FIFO, IN, MEMORY, OUT, SPECIAL_HALVES, VECTORS, VectorBuilder
from support import Asm
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.instructions import BY_NAME, INSTRUCTIONS, Unit
from waferloom.isa.program import Descriptor, TaskKind

LOOP_REGISTERS = (12, 13)
ZERO = 15  # register that loops clear before they compare
CONTROL_TASKS = (24, 25)


@dataclass
class Jobs:
    """What the routes ask of a PE: words per queue."""

    sends: dict[int, int] = field(default_factory=dict)
    receives: dict[int, int] = field(default_factory=dict)
    control_out: set[int] = field(default_factory=set)  # queues that may send control wavelets


@dataclass
class OpenTask:
    """A task that the completion of a thread starts; its code is written at the end."""

    task: int
    blocked: bool
    actions: list = field(default_factory=list)


class KernelBuilder(VectorBuilder):
    """Code and data of one random kernel."""

    def __init__(self, c: Choices, jobs: Jobs, wild: int) -> None:
        super().__init__(c, wild)
        self.jobs = jobs
        self.threads = 0
        self.eager = c.chance(70)  # whatever can be asynchronous is, and what receives comes first
        self.next_task = 1
        self.open: list[OpenTask] = []
        self.busy: dict[
            tuple[str, int], OpenTask | None
        ] = {}  # queues a thread uses -> what it starts at its end
        self.launched: OpenTask | None = None

    def compute(self) -> None:
        """A vector instruction in memory."""
        count = self.c.number(0, 40)
        if self.c.chance(25):
            count = self.c.pick([4, 8, 16, 32])
        self.vector(count, d=self.c.pick(["memory", "memory", "register"]))

    def launch(self) -> dict[str, int]:
        """Fields of an asynchronous launch, or none."""
        c = self.c
        self.launched = None
        if self.threads >= 8 or not (self.eager or c.chance(75)):
            return {}
        thread = self.threads if not c.chance(self.wild) else c.number(0, 7)
        self.threads += 1
        fields = {"thread": thread, "priority": c.number(0, 1), "completion": 0, "launch_task": 0}
        if c.chance(65):
            fields["completion"] = c.number(1, 2)
            fields["launch_task"] = self.follow_up(fields["completion"])
        return fields

    def follow_up(self, completion: int) -> int:
        """A new task that a completion starts; its code is written later."""
        task = self.next_task
        self.next_task += 1
        if task > 20:
            return self.c.number(0, 20)
        self.launched = OpenTask(task, completion == 2)
        self.open.append(self.launched)
        return task

    def use(self, queues: list[tuple[str, int]], action) -> None:
        """Perform an action on queues, or leave it to the task that starts when a thread has freed them."""
        for queue in queues:
            if queue in self.busy and not self.c.chance(self.wild):
                after = self.busy[queue]
                if after is not None:
                    after.actions.append((queues, action))
                return
        before = self.threads
        action()
        if self.threads > before:
            self.busy.update(dict.fromkeys(queues, self.launched))

    def shape(self, words: int) -> tuple[int, bool]:
        """(elements, packed) of a transfer of some words."""
        return (2 * words, True) if self.c.chance(40) else (words, False)

    def send(self, queue: int, words: int) -> None:
        """Words to an output queue."""
        c = self.c
        way = c.number(0, 9)
        if queue in self.jobs.control_out:
            for _ in range(c.number(0, 3)):
                self.control(queue)
        if way < 7:
            count, packed = self.shape(words)
            kinds = {"a": c.pick(["memory", "memory", "memory", "fifo"]), "b": "memory"}
            control = queue in self.jobs.control_out and not packed and c.chance(self.wild)
            self.vector(count, d=queue, packed=packed, control=control, **kinds, **self.launch())
        elif way < 9 or words > 8:
            self.loop(words, lambda: self.asm("send", queue=queue, ra=c.number(0, 13)))
        else:
            for _ in range(words):
                self.asm("send", queue=queue, ra=c.number(0, 13))

    def control(self, queue: int) -> None:
        """A control wavelet: commands for switches, a task, or both."""
        if self.c.chance(25):  # several, from memory
            payloads = [control_payload(self.c, self.wild) for _ in range(self.c.number(1, 3))]
            da = self.load(Descriptor(MEMORY, self.asm.values("<u4", payloads), (len(payloads),), (4,)))
            dd = self.load(self.fabric(OUT, queue, len(payloads), False, True), {da})
            self.asm("vmov", dd=dd, da=da, type=T.I32)
            return
        self.asm("li32", rd=10, value=control_payload(self.c, self.wild))
        self.asm("sendc", queue=queue, ra=10)

    def receive(self, queue: int, words: int) -> None:
        """Words from an input queue."""
        c = self.c
        if c.chance(70) or (self.eager and self.threads < 8):
            count, packed = self.shape(words)
            d = c.pick(["memory", "memory", "fifo", "register"][: 3 if self.eager else 4])
            side = c.pick(["a", "b"])
            self.vector(
                count, **{side: queue}, d=d, packed=packed, **(self.launch() if d != "register" else {})
            )
        else:
            self.loop(words, lambda: (self.asm("recv", queue=queue, ra=c.number(0, 11)), self.scalars(2)))

    def through(self, source: int, target: int, words: int) -> None:
        """From an input into a FIFO, and from there to an output at the same time."""
        c = self.c
        count, packed = self.shape(words)
        row = "vmov"
        element = c.pick([T.I16, T.F16, T.BF16]) if packed else c.pick([T.I16, T.I32, T.F32])
        capacity = c.number(2, 9)
        ring = Descriptor(FIFO, self.asm.space(4 + capacity * element.bytes), (count, capacity), (0, 0))
        for name, a, d in (
            ("in", self.fabric(IN, source, count, packed), ring),
            ("out", ring, self.fabric(OUT, target, count, packed)),
        ):
            da = self.load(a)
            dd = self.load(d, {da})
            self.asm(
                row,
                dd=dd,
                da=da,
                type=element,
                **({"asynchronous": 1} | self.launch_always() if name else {}),
            )

    def launch_always(self) -> dict[str, int]:
        self.threads += 1
        self.launched = None
        return {"thread": (self.threads - 1) % 8, "priority": self.c.number(0, 1)}

    def relay(self, source: int, target: int, words: int) -> None:
        """From an input to an output, unchanged or not."""
        count, packed = self.shape(words)
        b = self.c.pick(["memory", "memory", "fifo"])
        if self.c.chance(50):
            self.vector(count, a=source, b=b, d=target, packed=packed, **self.launch())
        else:
            self.vector(count, a=source, b="memory", d=target, packed=packed, **self.launch())

    def loop(self, times: int, body) -> None:
        """`body` a number of times, counted down in a register of its own."""
        register = self.c.pick(LOOP_REGISTERS)
        self.asm("li", rd=register, imm=times)
        start = len(self.asm.words)
        body()
        self.asm("li", rd=ZERO, imm=0)
        self.asm("addi", rd=register, ra=register, imm=-1)
        self.asm("bne", rd=register, ra=ZERO, offset=start - len(self.asm.words))

    def scalars(self, most: int = 8) -> None:
        """A few scalar instructions of any kind."""
        for _ in range(self.c.number(1, most)):
            self.scalar()

    def scalar(self) -> None:
        c, asm = self.c, self.asm
        row = c.pick(SCALARS)
        values = {name: c.number(0, 11) for name in ("rd", "ra", "rb") if name in row.fields}
        if row.name in BRANCHES:
            at = asm(row.name, **values, offset=1)
            for _ in range(c.number(0, 2)):
                asm("addi", rd=c.number(0, 11), ra=c.number(0, 11), imm=c.number(-3, 3))
            words = asm.words
            asm.words = words[:at]
            asm(row.name, **values, offset=len(words) - at)
            asm.words += words[at + 1 :]
            return
        if row.name in ("ld", "st"):
            place = 4 * c.number(0, self.arena // 4 - 1) + (1 if c.chance(self.wild) else 0)
            disp = 4 * c.number(-8, 8)
            asm("li", rd=11, imm=place - disp)
            values |= {"ra": 11, "disp": disp}
        if row.types:
            values["type"], values["source"] = c.pick(row.types)
        for name, value in (
            ("imm", c.number(-9, 9)), ("shift", c.number(0, 40)), ("jump", 1),
            ("address", 2 * c.number(0, self.arena // 2 - 2)),
            ("value", SPECIAL_HALVES[c.number(0, 10)] * 0x10001),
        ):  # fmt: skip
            if name in row.fields or (name == "value" and row.second_word):
                values[name] = value
        if row.name == "jr":
            asm("li", rd=values["ra"], imm=len(asm.words) + 2)
            asm("jr", ra=values["ra"])
            return
        asm(row.name, **{k: v for k, v in values.items() if k in row.fields or k == "value"})

    def anything(self) -> None:
        """What the machine has to refuse, or not."""
        c = self.c
        what = c.number(0, 6)
        if what == 0:
            self.asm.words.append(c.number(0, (1 << 32) - 1))
        elif what == 1:
            self.asm("trap", trap_code=c.number(0, 255))
        elif what == 2:
            self.asm(c.pick(["activate", "block", "unblock"]), task=c.number(0, 31))
        elif what == 3:
            self.asm("jmp", jump=c.number(-30, 30))
        elif what == 4:
            self.asm(c.pick(["send", "recv", "sendc"]), queue=c.number(0, 7), ra=c.number(0, 11))
        elif what == 5:
            self.vector(
                c.number(0, 5), a=c.number(0, 7), d=c.pick(["memory", c.number(0, 7)]), **self.launch()
            )
        else:
            self.asm("jr", ra=c.number(0, 11))

    # --- the whole ---

    def build(self) -> Asm:
        """Deal the jobs out to tasks."""
        c, asm, jobs = self.c, self.asm, self.jobs
        data_queues = [q for q in jobs.receives if c.chance(25)]
        actions: list = []
        receives = {q: n for q, n in jobs.receives.items() if q not in data_queues}
        sends = dict(jobs.sends)
        for q in list(receives):
            if sends and c.chance(30):
                target = c.pick(sends)
                words = min(receives[q], sends[target])
                how = self.through if self.threads < 6 and c.chance(30) else self.relay
                both = [("in", q), ("out", target)]
                actions.append((both, lambda how=how, q=q, target=target, words=words: how(q, target, words)))
                receives[q] -= words
                sends[target] -= words
        for q, n in receives.items():
            for part in self._parts(n):
                actions.append(([("in", q)], lambda q=q, n=part: self.receive(q, n)))
        for q, n in sends.items():
            for part in self._parts(n):
                actions.append(([("out", q)], lambda q=q, n=part: self.send(q, n)))
        for _ in range(c.number(0, 5)):
            actions.append(([], c.pick([self.scalars, self.compute, self.compute, self._looped, self.march])))
        if c.chance(2 * self.wild):
            actions.append(([], self.anything))
        order = []
        while actions:
            order.append(actions.pop(c.number(0, len(actions) - 1)))
        if self.eager or c.chance(60):  # or all might wait for each other
            places = {"out": 2, "in": 0} if self.eager else {"out": 0, "in": 2}
            order.sort(key=lambda item: places[item[0][0][0]] if item[0] else 1)
        asm.task(0, entry=True, priority=c.number(0, 1), blocked=c.chance(2))
        if c.chance(20):
            asm("done")
        for queues, action in order:
            self.use(queues, action)
            if c.chance(30):
                self._next_task()
        self._finish()
        while self.open:
            after = self.open.pop(0)
            asm.task(after.task, priority=c.number(0, 1), entry=after.blocked, blocked=after.blocked)
            self.busy = {queue: user for queue, user in self.busy.items() if user is not after}
            for queues, action in after.actions:
                self.use(queues, action)
            if self.next_task < 20 and c.chance(60):
                self.compute()
            self.scalars(3)
            self._finish()
        for n, q in enumerate(data_queues):
            asm.task(28 + n % 4 if n < 4 else 21 + n % 3, TaskKind.DATA, queue=q, priority=c.number(0, 1))
            self.scalars(4)
            if c.chance(20):
                asm("stm", rd=0, address=0, type=T.I32)
            self._finish()
        for number in CONTROL_TASKS:
            if not c.chance(self.wild):
                asm.task(number, TaskKind.CONTROL, priority=c.number(0, 1), blocked=c.chance(5))
                self.scalars(3)
                self._finish()
        return asm

    def _parts(self, words: int) -> list[int]:
        """A number of words, mostly at once."""
        if words < 2 or self.c.chance(70):
            return [words] * (words > 0)
        first = self.c.number(1, words - 1)
        return [first, words - first]

    def march(self) -> None:
        """A loop over rows: each round's descriptors begin where the last one's ended."""
        c = self.c
        row = c.pick(
            [row for row in VECTORS if "advance_b" in row.fields and row.name not in ("vdot", "vdiv")]
        )
        t, s = c.pick(row.types)
        count, times = c.number(1, 10), c.number(1, 5)
        used: set[int] = set()
        for size in (t.bytes, s.bytes, s.bytes):
            room = self.arena - times * count * size
            base = 4 * c.number(0, room // 4)
            pair = count % 2 == 0 and c.chance(50)
            extents, strides = ((2, count // 2), (count // 2 * size, size)) if pair else ((count,), (size,))
            if pair:
                strides = (strides[0], c.pick([size, 0, strides[1]]))
            register = self.load(Descriptor(MEMORY, base, extents, strides), used)
            used.add(register)
        dd, da, db = c.pick([sorted(used), sorted(used, reverse=True), [max(used)] * 3])
        flags = {f"advance_{name}": int(c.chance(60)) for name in "dab"}
        values = {"dd": dd, "da": da, "db": db, "type": t, "source": s, **flags}
        self.loop(times, lambda: self.asm(row.name, **{k: v for k, v in values.items() if k in row.fields}))

    def _looped(self) -> None:
        body = self.c.pick([lambda: self.scalars(4), self.compute])
        self.loop(self.c.number(1, 6), body)

    def _finish(self) -> None:
        if not self.c.chance(self.wild // 2):
            self.asm("end")

    def _next_task(self) -> None:
        """End this task; the rest follows in one that is active already or activated here."""
        task, c = self.next_task, self.c
        if task > 20:
            return
        self.next_task += 1
        entry = c.chance(30)
        if not entry:
            self.asm("activate", task=task)
        blocked = c.chance(15)
        if blocked:
            self.asm("unblock", task=task)
        elif c.chance(10):
            self.asm("block", task=task)
            self.asm("unblock", task=task)
        self.asm("end")
        self.asm.task(task, priority=c.number(0, 1), entry=entry, blocked=blocked)


BRANCHES = ("beq", "bne", "blt", "bge", "bltu", "bgeu")
NOT_SCALAR = "send sendc recv activate block unblock end done trap assert ldd setd addd jmp jal".split()
SCALARS = [row for row in INSTRUCTIONS if row.unit is Unit.SCALAR and row.name not in NOT_SCALAR]
SCALARS += [BY_NAME["jmp"], BY_NAME["jal"], BY_NAME["ld"], BY_NAME["st"]]


def control_payload(c: Choices, wild: int) -> int:
    """Commands, free data and perhaps a task of a control wavelet."""
    commands = 0
    for k in range(8):
        commands |= (3 if c.chance(wild // 2) else c.pick([1, 0, 2])) << 2 * k
    payload = commands | c.number(0, 255) << 16
    if c.chance(40):
        payload |= 1 << 29 | (c.pick(CONTROL_TASKS) if not c.chance(wild // 2) else c.number(0, 31)) << 24
    return payload
