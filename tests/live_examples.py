#!/usr/bin/env python3
"""`isthmus live` between the example programs of the OpenIGTLink library: live_examples.py build/gcc/tests/isthmus_fake FOLDER

ImagerClient sends to it, then it takes from ImagerServer; ReceiveClient gets the results, checks their CRC and writes down
what they say. FOLDER is for the programs: their sources come from Debian's package openigtlink-examples, which is unpacked
there and not installed, and are compiled against libopenigtlink-dev. Exit code 77 where one of these is not to be had."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys

from live_program import GIVE_UP, Live, wait

PACKAGE = "openigtlink-examples"
PROGRAMS = {"ImagerClient": "Imager", "ImagerServer": "Imager", "ReceiveClient": "Receiver"}
FRAMES = 100  # what an Imager sends, of five pictures of 256 x 256
SIDE = 256
FPS = 100


def leave_out(why):
    print(f"left out: {why}")
    sys.exit(77)


def sources(folder):
    """Where the examples are: installed, or unpacked below the folder."""
    inside = "usr/share/doc/openigtlink-examples/examples"
    for root in ("/", folder):
        if os.path.isdir(os.path.join(root, inside, "Imager")):
            return os.path.join(root, inside)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        leave_out(f"{PACKAGE} is unpacked with Debian's tools")
    if subprocess.run(["apt-get", "-q", "download", PACKAGE], cwd=folder, capture_output=True).returncode:
        leave_out(f"apt-get does not download {PACKAGE}")
    subprocess.run(["dpkg-deb", "-x", glob.glob(os.path.join(folder, PACKAGE + "_*.deb"))[0], folder], check=True)
    return os.path.join(folder, inside)


def build(folder, examples):
    headers = next((os.path.join(p, "openigtlink") for p in ("/usr/include", "/usr/local/include")
                    if os.path.isfile(os.path.join(p, "openigtlink", "igtlImageMessage.h"))), None)
    if not headers or not shutil.which("c++"):
        leave_out("no C++ compiler or no headers of OpenIGTLink (Debian: libopenigtlink-dev)")
    for program, part in PROGRAMS.items():
        source, to = os.path.join(examples, part, program + ".cxx"), os.path.join(folder, program)
        if not os.path.exists(to):
            subprocess.run(["c++", "-w", "-I" + headers, source, "-o", to, "-lOpenIGTLink", "-pthread"], check=True)


class Example:
    """A running example program; what it says goes to a file, which is read again and again."""

    def __init__(self, folder, name, *arguments):
        self.path = os.path.join(folder, name + ".txt")
        with open(self.path, "w") as out:
            self.process = subprocess.Popen([os.path.join(folder, name), *map(str, arguments)], cwd=folder, stdout=out,
                                            stderr=out)

    def said(self):
        with open(self.path, errors="replace") as f:
            return f.read()

    def end(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def check_received(text):
    """ReceiveClient describes only what its CRC is right of: per frame a map of labels, a string and the corners of three
    boxes, (i, i) and (i + 128, i + 128) for object i (tests/fake_engine.c), around the middle of the picture in mm; the
    Imager's y goes up."""
    maps = re.findall(r"Device Name +: (\S+)\nScalar Type +: (\d+)\nDimensions +: \((.*)\)\nSpacing +: \((.*)\)\n"
                      r"Sub-Volume dimensions : \((.*)\)\nSub-Volume offset +: \((.*)\)", text)
    size, middle = f"{SIDE}, {SIDE}, 1", (SIDE - 1) / 2
    assert maps == [("ImagerClient_seg", "3", size, "1.000000, 1.000000, 5.000000", size, "0, 0, 0")] * FRAMES, maps[:3]
    lines = [json.loads(line) for line in re.findall(r"Encoding: 106; String: (.*)", text)]  # 106: UTF-8
    assert [line["number"] for line in lines] == list(range(1, FRAMES + 1)), lines[:1]
    assert all([o["label"] for o in line["objects"]] == [0, 11, 22] for line in lines), lines[:1]
    corners = [float(x) for x in re.findall(r"Position +: \( (\S+), \S+, 0\.000000 \)", text)]
    heights = [float(y) for y in re.findall(r"Position +: \( \S+, (\S+), 0\.000000 \)", text)]
    want = [i + k * SIDE / 2 - middle for i in range(3) for k in range(2)]
    assert corners == want * FRAMES, corners[:6]
    assert heights == [-x for x in want] * FRAMES, heights[:6]
    assert re.search(r"Code +: 1\b", text), "no STATUS of a connection"


def there_and_back(folder, program, live, source):
    """`source` starts the program that sends, now that the one that receives is there."""
    receiver = Example(folder, "ReceiveClient", "127.0.0.1", live.port("served on"))
    wait("ReceiveClient is not greeted", lambda: "Receiving STATUS" in receiver.said())
    imager = source()
    wait("not all frames come back", lambda: receiver.said().count("Receiving IMAGE") >= FRAMES)
    text = live.stop()
    wait("ReceiveClient does not end", lambda: receiver.process.poll() is not None)
    imager.end()
    check_received(receiver.said())
    assert f"{FRAMES} received, {FRAMES} processed, 0 dropped, 0 late" in text, text


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    examples = sources(folder)
    build(folder, examples)
    pictures = os.path.relpath(os.path.join(examples, "Imager", "img"), folder)  # an Imager has room for 128 characters
    results = ["--to", "igtl-listen://:0", "--send", "labels,string,boxes", "--no-drop"]
    live = Live(program, "--from", "igtl-listen://:0", *results)
    there_and_back(folder, program, live,
                   lambda: Example(folder, "ImagerClient", "127.0.0.1", live.port("expected on"), FPS, pictures))
    port = free_port()
    live = Live(program, "--from", f"igtl://127.0.0.1:{port}", *results)
    there_and_back(folder, program, live, lambda: Example(folder, "ImagerServer", port, FPS, pictures))
    print(f"2 directions, {FRAMES} frames each: as they should be")


main()
