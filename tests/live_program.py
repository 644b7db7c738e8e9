"""A running `isthmus live` over the double of the engine, for scripts that talk to it (live_pyigtl.py, live_examples.py)."""
import os
import re
import signal
import subprocess
import tempfile
import time

GIVE_UP = 60  # seconds; nothing passes by them


class Live:
    """A running `isthmus live`; `ports` are those that it says it has opened."""

    def __init__(self, program, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        for name in ("dfine_n_demo", "mobile_sam_demo"):
            open(os.path.join(self.folder.name, name + ".safetensors"), "w").close()
        environment = dict(os.environ, ISTHMUS_WEIGHTS_DIR=self.folder.name)
        self.process = subprocess.Popen([program, "live", *arguments], stderr=subprocess.PIPE, text=True, env=environment)
        self.said = ""
        while "ready on" not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line

    def port(self, words):
        return int(re.search(words + r" \S*:(\d+)", self.said).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.said += self.process.communicate()[1]
        assert self.process.returncode == 0, self.said
        return self.said


def wait(what, condition):
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)
