#!/usr/bin/env python3
"""`isthmus live` between programs made of pyigtl: python3 tests/live_pyigtl.py build/gcc/tests/isthmus_fake

Sends images as a client and as a server, receives label maps and strings, and compares them with what the double of the
engine is known to find (tests/fake_engine.c). Exit code 77 without pyigtl (PyPI)."""
import json
import os
import sys

from live_program import GIVE_UP, Live, wait

try:
    import numpy as np
    import pyigtl
except ImportError as missing:
    print(f"left out: {missing}")
    sys.exit(77)


def expected(width, height):
    """The label map: object i covers columns i to i + 4 of the first 40 rows; the first ones win."""
    labels = np.zeros((height, width), np.uint8)
    for i in (2, 1, 0):
        labels[:40, i:i + 5] = i + 1
    return labels


def check(client, shape, matrix, timestamp):
    text = client.wait_for_message("Probe_objects", GIVE_UP)
    labels = client.wait_for_message("Probe_seg", GIVE_UP)
    assert text and labels
    assert abs(text.timestamp - timestamp) < 1e-6 and abs(labels.timestamp - timestamp) < 1e-6
    line = json.loads(text.string)
    assert [o["label"] for o in line["objects"]] == [0, 11, 22] and line["device"] == "Probe"
    assert labels.image.shape == shape, labels.image.shape
    height, width = [n for n in shape if n > 1]
    assert np.array_equal(labels.image.reshape(height, width), expected(width, height))
    assert np.allclose(labels.ijk_to_world_matrix, matrix, atol=1e-4)


def images():
    matrix = np.array([[0, -0.4, 0, 10], [0.3, 0, 0, -20], [0, 0, 1, 5], [0, 0, 0, 1]], np.float32)
    gray = np.arange(48 * 64).reshape(1, 48, 64)
    yield gray.astype(np.uint8), (1, 48, 64), matrix
    yield gray.astype(np.uint16), (1, 48, 64), matrix
    yield gray.astype(np.int16), (1, 48, 64), matrix
    yield np.zeros((1, 60, 80, 3), np.uint8), (1, 60, 80), matrix
    yield np.zeros((50, 70), np.uint8), (50, 70, 1), np.eye(4)  # as pyigtl sends two dimensions


def send_all(sender, client):
    for i, (image, shape, matrix) in enumerate(images()):
        timestamp = 1000.5 + i
        message = pyigtl.ImageMessage(image, ijk_to_world_matrix=matrix, device_name="Probe", timestamp=timestamp)
        assert sender.send_message(message, wait=False)
        check(client, shape, matrix, timestamp)


def pyigtl_connects(program):
    live = Live(program, "--from", "igtl-listen://:0", "--to", "igtl-listen://:0")
    client = pyigtl.OpenIGTLinkClient("127.0.0.1", live.port("served on"))
    wait("no greeting", lambda: client.wait_for_message("isthmus", 0.1) or client.is_connected())
    sender = pyigtl.OpenIGTLinkClient("127.0.0.1", live.port("expected on"))
    send_all(sender, client)
    sender.stop()
    client.stop()
    assert "5 received, 5 processed, 0 dropped, 0 late" in live.stop(), live.said


def isthmus_connects(program):
    server = pyigtl.OpenIGTLinkServer(port=0)
    port = server.server_address[1]
    live = Live(program, "--from", f"igtl://127.0.0.1:{port}", "--to", "igtl-listen://:0")
    client = pyigtl.OpenIGTLinkClient("127.0.0.1", live.port("served on"))
    wait("no connection", lambda: server.is_connected() and client.is_connected())
    client.wait_for_message("isthmus", GIVE_UP)
    send_all(server, client)
    client.stop()
    live.stop()
    assert "5 received, 5 processed" in live.said, live.said


def main():
    program = sys.argv[1]
    pyigtl_connects(program)
    isthmus_connects(program)
    print("2 directions, 5 kinds of images: as they should be")


main()
sys.stdout.flush()
os._exit(0)  # pyigtl's server thread waits for a connection
