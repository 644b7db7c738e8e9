"""Simulates many actors with measured service times and compares with docs/scale.md's model: simulate_scale.py [--images N]

Each actor fetches batches from a store that all share, decodes them on its cores and gives them to its device; a queue of
two batches lies between the stages. Blocks of images come from one driver that takes a moment for each, and what an actor that
dies has of its block is done again by itself after a restart. The model says images per second as the least of what the stages
allow; the simulation has queues, spread and failures, and counts until no block is left to begin. Prints a table; exits with 1
where both differ by more than 10 %.
"""
import argparse
import heapq
import math
import random

BATCH = 32  # of the simulation: what is fetched, decoded and computed at a time
QUEUE = 2
CASES = [
    # name, actors, device ms, spread, core ms, cores, MB, store MB/s, store ms to the first byte, driver ms per block, hours between deaths
    ("PNG, 16 cores a GPU", 1000, 0.8, 0.03, 17.8, 16, 1.04, 2e6, 30, 5, math.inf),
    ("PNG, 32 cores a GPU", 1000, 0.8, 0.03, 17.8, 32, 1.04, 2e6, 30, 5, math.inf),
    ("JPEG, 16 cores a GPU", 1000, 0.8, 0.03, 9.0, 16, 0.2, 2e6, 30, 5, math.inf),
    ("the same, a store of 100 GB/s", 1000, 0.8, 0.03, 9.0, 16, 0.2, 1e5, 30, 5, math.inf),
    ("the same, blocks that cost the driver 100 ms", 1000, 0.8, 0.03, 9.0, 16, 0.2, 2e6, 30, 100, math.inf),
    ("the same, an actor dies each 10 hours of its own", 1000, 0.8, 0.03, 9.0, 16, 0.2, 2e6, 30, 5, 10),
    ("CPUs of one core, 300 ms an image", 1000, 300, 0.1, 6.0, 1, 1.04, 2e6, 30, 5, math.inf),
]
RESTART_S = 12.0  # a process, an engine with its kernels cached


def model(case, block):
    """Images per second, and what limits them."""
    _, actors, device, _, core, cores, size, store, _, driver, _ = case
    limits = {
        "device": actors * 1e3 / device,
        "cores": actors * cores * 1e3 / core,
        "store": store / size,
        "driver": block * 1e3 / driver,
    }
    name = min(limits, key=limits.get)
    return limits[name], name


class Shared:
    """Something that serves one after the other."""

    def __init__(self):
        self.free = 0.0

    def serve(self, now, seconds):
        self.free = max(self.free, now) + seconds
        return self.free


class Actor:
    def __init__(self, life):
        self.fetched, self.decoded, self.computed = [0.0] * QUEUE, [0.0] * QUEUE, [0.0] * QUEUE
        self.left = 0  # batches of its block
        self.begun = 0  # of the block, batches that a death would lose
        self.dies = life


def simulate(case, images, block, seed=1):
    """Images per second while there are blocks to begin."""
    _, actors, device, spread, core, cores, size, store, first_byte, driver, hours = case
    dice = random.Random(seed)
    life = (lambda: dice.expovariate(1 / (3600 * hours))) if hours < math.inf else (lambda: math.inf)
    per_block = block // BATCH
    blocks = images // block
    net, coordinator = Shared(), Shared()
    all_actors = [Actor(life()) for _ in range(actors)]
    events = [(dice.random() * 1e-3, i) for i in range(actors)]
    heapq.heapify(events)
    for a in all_actors:  # in the middle of a block each, as in a run that has gone on for long
        a.left = a.begun = dice.randint(1, per_block)
    begun = 0
    while True:
        now, i = heapq.heappop(events)
        a = all_actors[i]
        if a.left == 0:
            if not blocks:
                return begun * block / now
            blocks -= 1
            begun += 1
            a.left = a.begun = per_block
            now = coordinator.serve(now, driver / 1e3)
        # A store's bandwidth is shared, its time to the first byte is not; a batch's images are asked for together.
        fetched = net.serve(now, BATCH * size / store) + first_byte / 1e3 / QUEUE
        jitter = math.exp(dice.gauss(0, spread))
        decoded = max(fetched, a.decoded[-1], a.computed[-QUEUE]) + BATCH * core / cores / 1e3 * math.exp(dice.gauss(0, 0.1))
        computed = max(decoded, a.computed[-1]) + BATCH * device / 1e3 * jitter
        if computed > a.dies:
            a.left = a.begun  # the block again, from its beginning
            a.dies = computed + RESTART_S + life()
            idle = computed + RESTART_S
            a.fetched, a.decoded, a.computed = [idle] * QUEUE, [idle] * QUEUE, [idle] * QUEUE
            heapq.heappush(events, (idle, i))
            continue
        for times, value in ((a.fetched, fetched), (a.decoded, decoded), (a.computed, computed)):
            times.append(value)
            del times[0]
        a.left -= 1
        heapq.heappush(events, (max(fetched, a.decoded[0]), i))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=24_000_000)
    parser.add_argument("--block", type=int, default=8192)
    a = parser.parse_args()
    wrong = 0
    print("| case, 1,000 actors | model, images/s | limit | simulated | ratio |\n|---|---|---|---|---|")
    for case in CASES:
        slow = case[2] > 100
        block = 1024 if slow else a.block
        said, limit = model(case, block)
        found = simulate(case, a.images // 6 if slow else a.images, block)
        print(f"| {case[0]} | {said:,.0f} | {limit} | {found:,.0f} | {found / said:.2f} |", flush=True)
        wrong += abs(found / said - 1) > 0.1
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
