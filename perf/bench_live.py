#!/usr/bin/env python3
"""What `isthmus live` takes from the last byte of a frame to the first byte of its result, at a rate of frames.

    python3 perf/bench_live.py build/gcc/isthmus --rate 60 --seconds 20 [--size 640x480] [-- LIVE OPTIONS...]

Sends gray frames over OpenIGTLink on the same host and receives label maps and strings, as a scanner and 3D Slicer would.
Prints one JSON object: frames sent, answered and not, the program's own count, the latency that the receiver sees and the
one that the program counts, memory at the start and at the end. Standard library only."""
import argparse
import json
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
    """Notes when the first byte of each frame's result comes, by the frame's timestamp."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.first, self.complete = {}, set()
        self.start()

    def run(self):
        try:
            while True:
                first = self.connection.recv(1)
                now = time.perf_counter()
                if not first:
                    return
                header = HEADER.unpack(first + read_exactly(self.connection, HEADER.size - 1))
                read_exactly(self.connection, header[4])
                if header[1].startswith(b"STATUS"):
                    continue
                self.first.setdefault(header[3], now)
                if header[1].startswith(b"IMAGE"):
                    self.complete.add(header[3])
        except (EOFError, OSError):
            pass


def memory_of(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def percentile(values, p):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * p / 100))], 3) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rate", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="640x480")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, rest = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1:]
    width, height = map(int, options.size.split("x"))
    body = image_body(width, height)
    crc = crc64(body)
    command = [options.program, "live", "--from", "igtl-listen://:0", "--to", "igtl-listen://:0", *rest]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = ""
    while "ready on" not in said:
        line = process.stderr.readline()
        if not line:
            sys.exit(said)
        said += line
    lines = []
    threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True).start()
    receiver = Receiver(int(re.search(r"served on \S*:(\d+)", said).group(1)))
    sender = socket.create_connection(("127.0.0.1", int(re.search(r"expected on \S*:(\d+)", said).group(1))))
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent, start, memory = {}, time.perf_counter(), None
    count = int(options.rate * options.seconds)
    for i in range(count):
        wait = start + i / options.rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        sender.sendall(HEADER.pack(1, b"IMAGE", b"Probe", i + 1, len(body), crc) + body)
        sent[i + 1] = time.perf_counter()
        if i == count // 4:
            memory = memory_of(process.pid)
    end = time.perf_counter() + 10
    while count not in receiver.complete and time.perf_counter() < end:
        time.sleep(0.01)
    grown = memory_of(process.pid) - memory
    process.send_signal(signal.SIGINT)
    process.wait()
    time.sleep(0.1)
    summary = [line for line in lines if " in " in line and "received" in line]
    late = [1e3 * (receiver.first[t] - sent[t]) for t in receiver.first if t in sent]
    own = re.search(r"p50 ([0-9.]+), p99 ([0-9.]+)", summary[-1]) if summary else None
    print(json.dumps({
        "device": re.search(r"ready on (.*)", said).group(1), "rate": options.rate, "size": options.size, "sent": count,
        "answered": len(receiver.complete), "last_frame_answered": count in receiver.complete,
        "receiver_ms": {"p50": percentile(late, 50), "p99": percentile(late, 99)},
        "program_ms": {"p50": float(own.group(1)), "p99": float(own.group(2))} if own else None,
        "memory_mib": memory, "memory_growth_mib": grown, "exit_code": process.returncode,
        "summary": summary[-1].strip() if summary else None}, indent=1))


main()
