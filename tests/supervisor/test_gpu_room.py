"""GPU memory is never promised twice: beside strangers, beside runs above their reservation, and where processes are
hidden."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.gpus.readings import GpuReading, SliceReading, usable
from kgops.supervisor.gpu_room import GpuNow
from kgops.supervisor.queue import find_allocation
from storage.runs import Run

STRANGER = 4_711


class Machine:
    """GPUs as they really are: what each run uses, and what strangers use."""

    def __init__(self, sizes_mib: list[int | None], sliced: int | None) -> None:
        """`sliced`: the GPU that MIG divides in two."""
        self.sizes: dict[str, int | None] = {}
        self.slices: dict[str, tuple[str, str]] = {}
        for i, size in enumerate(sizes_mib):
            if i == sliced and size is not None:
                self.slices[f"GPU-{i}"] = (f"MIG-{i}-0", f"MIG-{i}-1")
                self.sizes |= {f"MIG-{i}-0": size // 2, f"MIG-{i}-1": size // 2}
            else:
                self.sizes[f"GPU-{i}"] = size
        self.strangers = dict.fromkeys(self.sizes, 0)
        self.used: dict[tuple[str, int], int] = {}
        self.active: list[Run] = []

    def used_on(self, uuid: str) -> int:
        return self.strangers[uuid] + sum(mib for (gpu, _), mib in self.used.items() if gpu == uuid)

    def free_on(self, uuid: str) -> int:
        return max((self.sizes[uuid] or 0) - self.used_on(uuid), 0)

    def promised_on(self, uuid: str) -> int:
        there = [run for run in self.active if uuid in run.gpus]
        kept = sum(max(run.reserved_mib or 0, self.used.get((uuid, run.id), 0)) for run in there)
        return self.strangers[uuid] + kept

    def read(self, hidden: set[int]) -> tuple[GpuNow, ...]:
        """What the queue sees; of the runs in `hidden` the driver does not say what they use."""
        gpus = []
        for i, uuid in enumerate(dict.fromkeys([*self.slices, *self.sizes])):
            gpu = GpuReading(i, uuid)
            if uuid in self.slices:
                parts = tuple(self._slice(n, part) for n, part in enumerate(self.slices[uuid]))
                gpus.append(replace(gpu, mig_enabled=True, slices=parts, problem=None))
            elif not uuid.startswith("MIG"):
                size, used = self.sizes[uuid], self.used_on(uuid)
                total, taken = (None, None) if size is None else (size + 451, used)
                gpus.append(
                    replace(
                        gpu,
                        memory_total_mib=total,
                        memory_used_mib=taken,
                        memory_reserved_mib=451,
                        problem=None,
                    )
                )
        return tuple(GpuNow(one, self._shown(one.uuid or "", hidden), (STRANGER,)) for one in usable(gpus))

    def _slice(self, place: int, uuid: str) -> SliceReading:
        return SliceReading(place, uuid, None, self.sizes[uuid], self.used_on(uuid), None, None, "v2", None)

    def _shown(self, uuid: str, hidden: set[int]) -> dict[int, float | None]:
        return {
            run.id: None if run.id in hidden else self.used.get((uuid, run.id), 0)
            for run in self.active
            if uuid in run.gpus
        }


def run_of(number: int, gpu: str, reserved_mib: int | None, *, exclusive: bool = False) -> Run:
    return Run(
        id=number, state="queued", gpu_request=gpu, reserved_mib=reserved_mib, exclusive=int(exclusive)
    )


@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 32))
def test_never_more_is_promised_than_there_is(seed: int) -> None:
    chance = Random(seed)
    sizes = chance.choices([None, 4_000, 14_909, 40_327], k=chance.randint(1, 4))
    machine = Machine(sizes, chance.choice([None, *range(len(sizes))]))
    asked = ["auto", "all", "0", "1", "0,1", "auto:2", *machine.sizes]
    launches = 0
    while launches < 40:
        _something_happens(machine, chance)
        hidden = set(chance.choices(range(40), k=chance.choice((0, 0, 20))))
        gpus = machine.read(hidden)
        for _ in range(chance.randint(1, 2)):  # two consoles that read at the same moment
            launches += 1
            need = chance.choice((None, chance.randint(0, 16_000), chance.randint(0, 4_000)))
            run = run_of(launches, chance.choice(asked), need, exclusive=chance.random() < 0.1)
            allocation = find_allocation(run, machine.active, gpus, {})
            if allocation.gpu is None:
                continue
            run = run._replace(gpu=allocation.gpu, state="running")
            machine.active.append(run)
            for gpu in run.gpus:
                there = [other for other in machine.active if gpu in other.gpus]
                size = machine.sizes[gpu]
                assert size is not None and machine.promised_on(gpu) <= size
                shares = all(one.reserved_mib is not None and not one.exclusive for one in there)
                assert shares or len(there) == 1


def _something_happens(machine: Machine, chance: Random) -> None:
    uuid, event = chance.choice(list(machine.sizes)), chance.randint(0, 3)
    if event == 0:  # a stranger takes what is free, whatever was promised, or gives some back
        machine.strangers[uuid] = chance.randint(0, machine.strangers[uuid] + machine.free_on(uuid))
    if event == 0 or not machine.active:
        return
    run = chance.choice(machine.active)
    if event == 1:
        machine.active.remove(run)
        machine.used = {key: mib for key, mib in machine.used.items() if key[1] != run.id}
    else:  # it grows, perhaps above its reservation, or frees memory
        gpu = chance.choice(run.gpus)
        most = machine.free_on(gpu) + machine.used.get((gpu, run.id), 0)
        machine.used[gpu, run.id] = chance.randint(0, min(most, 2 * (run.reserved_mib or most)))


@given(
    stranger=st.integers(0, 14_909),
    runs=st.lists(st.tuples(st.integers(0, 8_000), st.integers(0, 8_000)), max_size=3),
    need=st.integers(0, 14_909),
)
def test_a_run_starts_exactly_where_its_memory_is_left(
    stranger: int, runs: list[tuple[int, int]], need: int
) -> None:
    """Each run once: by its reservation, or by what it uses above it."""
    machine = Machine([14_909], None)
    machine.strangers["GPU-0"] = stranger
    for i, (reserved, used) in enumerate(runs):
        machine.used["GPU-0", i + 1] = min(used, machine.free_on("GPU-0"))
        machine.active.append(run_of(i + 1, "0", reserved)._replace(gpu="GPU-0", state="running"))
    left = 14_909 - machine.promised_on("GPU-0")
    allocation = find_allocation(run_of(9, "0", need), machine.active, machine.read(set()), {})
    assert (allocation.gpu == "GPU-0") == (need <= left)
    assert allocation.left_mib == (left - need if need <= left else None)
