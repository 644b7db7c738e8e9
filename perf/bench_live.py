#!/usr/bin/env python3
"""What `isthmus live` takes from the last byte of a frame to the first byte of its result, at a rate of frames.

    python3 perf/bench_live.py build/gcc/isthmus --rate 60 --seconds 20 [--size 640x480] [-- LIVE OPTIONS...]
    python3 perf/bench_live.py build/gcc/isthmus --rate 60 --minutes 60 --check

Sends gray frames over OpenIGTLink on the same host and receives label maps and strings, as a scanner and 3D Slicer would.
Prints one JSON object: frames sent, answered and not, the program's own count, the latency that the receiver sees and the
one that the program counts, memory and descriptors. Standard library only.

With --check it also says what did not hold, under "failed", and its exit code is then 1. The first sixth of the time (ten
minutes of an hour) is compared with the last, the second quarter with the last:
  lost       each frame is answered, none is dropped or late by the program's own count, and it ends with 0
  rate       frames were sent as fast as asked, within 1 %
  latency    p50 of the last sixth is at most 10 % and 0.1 ms above that of the first (which leaves out the first two
             seconds, in which kernels and buffers are new), p99 at most 50 % and 1 ms
  memory     its most in the last quarter is at most 1 % and 4 MiB above the most of the second, as in tests/soak.sh
  files      no more descriptors are open in the last quarter than were in the second
It stops early when nothing has been answered for a minute."""
import argparse
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HEADER = struct.Struct(">H12s20sQQQ")
POLYNOMIAL = 0x42F0E1EBA9EA3693  # ECMA-182, as OpenIGTLink has it


def crc64(data):
    table = []
    for i in range(256):
        c = i << 56
        for _ in range(8):
            c = (c << 1 ^ POLYNOMIAL if c >> 63 else c << 1) & 0xFFFFFFFFFFFFFFFF
        table.append(c)
    crc = 0
    for byte in data:
        crc = table[crc >> 56 ^ byte] ^ crc << 8 & 0xFFFFFFFFFFFFFFFF
    return crc


def image_body(width, height):
    """A bright bar on a dark ground with noise."""
    head = struct.pack(">HBBBB3H12f6H", 1, 1, 3, 2, 1, width, height, 1, *[0.2, 0, 0, 0, 0.2, 0, 0, 0, 1, 0, 0, 0],
                       0, 0, 0, width, height, 1)
    rows = bytearray(width * height)
    noise = 1
    for y in range(height):
        for x in range(width):
            noise = noise * 1664525 + 1013904223 & 0xFFFFFFFF
            rows[y * width + x] = (noise >> 27) + (150 if height // 3 < y < height // 3 + 9 + x // 40 else 20)
    return head + bytes(rows)


def read_exactly(connection, count):
    data = bytearray(count)
    view, have = memoryview(data), 0
    while have < count:
        n = connection.recv_into(view[have:])
        if n == 0:
            raise EOFError
        have += n
    return data


class Receiver(threading.Thread):
    """Notes when the first byte of each frame's result comes, by the frame's timestamp. `last_kind` is of the message that
    completes a result."""

    def __init__(self, port, last_kind):
        super().__init__(daemon=True)
        self.last_kind = last_kind
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.first, self.complete, self.last = {}, set(), None
        self.start()

    def run(self):
        try:
            while True:
                first = self.connection.recv(1)
                now = self.last = time.perf_counter()
                if not first:
                    return
                header = HEADER.unpack(first + read_exactly(self.connection, HEADER.size - 1))
                read_exactly(self.connection, header[4])
                if header[1].startswith(b"STATUS"):
                    continue
                self.first.setdefault(header[3], now)
                if header[1].startswith(self.last_kind):
                    self.complete.add(header[3])
        except (EOFError, OSError):
            pass


def memory_of(pid):
    """MiB in use."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def percentile(values, p):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * p / 100))], 3) if values else None


class Program:
    """A running `isthmus live`, what it says, and samples of its memory and descriptors."""

    def __init__(self, path, options):
        command = [path, "live", "--from", "igtl-listen://:0", "--to", "igtl-listen://:0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said, self.lines, self.samples = "", [], []
        while "ready on" not in self.said:
            line = self.process.stderr.readline()
            if not line:
                sys.exit(self.said)
            self.said += line
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def port(self, words):
        return int(re.search(words + r" \S*:(\d+)", self.said).group(1))

    def sample(self, at):
        pid = self.process.pid
        self.samples.append((at, memory_of(pid), len(os.listdir(f"/proc/{pid}/fd"))))

    def most(self, which, begin, end):
        """The most of one number of the samples between two times."""
        return max((s[which] for s in self.samples if begin <= s[0] <= end), default=0)

    def stop(self):
        """The line of counts that it ends with, or None."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        time.sleep(0.1)
        return next((line.strip() for line in reversed(self.lines) if " in " in line and "received" in line), None)


def send_frames(program, receiver, rate, seconds, size):
    """Sends at that rate; when each was sent, by its timestamp, which counts from 1, and how long it took in all."""
    body = image_body(*size)
    crc = crc64(body)
    sender = socket.create_connection(("127.0.0.1", program.port("expected on")))
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent, start, sampled, told = {}, time.perf_counter(), -10, 0
    count = int(rate * seconds)
    for i in range(count):
        wait = start + i / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        sender.sendall(HEADER.pack(1, b"IMAGE", b"Probe", i + 1, len(body), crc) + body)
        sent[i + 1] = time.perf_counter()
        at = sent[i + 1] - start
        if at - sampled >= min(5, seconds / 40):
            program.sample(at)
            sampled = at
        if at - told >= 60:
            told = at
            answered = len(receiver.complete)
            print(f"{at / 60:.0f} min: {i + 1} sent, {answered} answered, {program.samples[-1][1]:.1f} MiB",
                  file=sys.stderr)
            if receiver.last and time.perf_counter() - receiver.last > 60:
                break
    took = time.perf_counter() - start
    end = time.perf_counter() + 10
    while len(sent) not in receiver.complete and time.perf_counter() < end:
        time.sleep(0.01)
    return sent, start, took


def failures(facts, latency, files, memory):
    """What of the criteria above does not hold."""
    sent, said = facts["sent"], facts["summary"] or ""
    failed = []
    if facts["answered"] != sent or f"{sent} received, {sent} processed, 0 dropped, 0 late" not in said or facts["exit_code"]:
        failed.append(f"lost: {facts['answered']} of {sent} answered; {said}")
    if facts["rate_held"] < 0.99 * facts["rate"]:
        failed.append(f"rate: {facts['rate_held']} frames a second")
    (p50, p99), (late_p50, late_p99) = latency
    if p50 is None or late_p50 is None or late_p50 > 1.1 * p50 + 0.1 or late_p99 > 1.5 * p99 + 1:
        failed.append(f"latency: p50 {p50} -> {late_p50} ms, p99 {p99} -> {late_p99} ms")
    if memory[1] > 1.01 * memory[0] + 4:
        failed.append(f"memory: {memory[0]:.1f} -> {memory[1]:.1f} MiB")
    if files[1] > files[0]:
        failed.append(f"files: {files[0]} -> {files[1]} descriptors")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rate", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--minutes", type=float, help="instead of --seconds")
    parser.add_argument("--size", default="640x480")
    parser.add_argument("--check", action="store_true", help="fail where the criteria do not hold")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, rest = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1:]
    seconds = 60 * options.minutes if options.minutes else options.seconds
    program = Program(options.program, rest)
    receiver = Receiver(program.port("served on"), b"STRING" if "--no-masks" in rest else b"IMAGE")
    size = tuple(map(int, options.size.split("x")))
    sent, start, took = send_frames(program, receiver, options.rate, seconds, size)
    summary = program.stop()

    late = {t: 1e3 * (receiver.first[t] - sent[t]) for t in receiver.first if t in sent}
    latency = []
    for begin, end in ((min(2, took / 12), took / 6), (took * 5 / 6, took)):
        part = [ms for t, ms in late.items() if begin <= sent[t] - start <= end]
        latency.append((percentile(part, 50), percentile(part, 99)))
    memory = [program.most(1, took / 4, took / 2), program.most(1, took * 3 / 4, took)]
    files = [program.most(2, took / 4, took / 2), program.most(2, took * 3 / 4, took)]
    own = re.search(r"p50 ([0-9.]+), p99 ([0-9.]+)", summary) if summary else None
    facts = {
        "device": re.search(r"ready on (.*)", program.said).group(1), "rate": options.rate, "size": options.size,
        "sent": len(sent), "rate_held": round((len(sent) - 1) / max(took - 1e-9, 1e-9), 2) if len(sent) > 1 else options.rate,
        "answered": len(receiver.complete), "last_frame_answered": len(sent) in receiver.complete,
        "receiver_ms": {"p50": percentile(late.values(), 50), "p99": percentile(late.values(), 99)},
        "first_sixth_ms": {"p50": latency[0][0], "p99": latency[0][1]},
        "last_sixth_ms": {"p50": latency[1][0], "p99": latency[1][1]},
        "program_ms": {"p50": float(own.group(1)), "p99": float(own.group(2))} if own else None,
        "memory_mib": [round(m, 1) for m in memory], "descriptors": files, "exit_code": program.process.returncode,
        "summary": summary}
    if options.check:
        facts["failed"] = failures(facts, latency, files, memory)
    print(json.dumps(facts, indent=1))
    sys.exit(1 if options.check and facts["failed"] else 0)


main()
