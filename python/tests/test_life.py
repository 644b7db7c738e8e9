"""An engine's life: closing, threads, processes, interrupts, memory."""
import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import CYCLES, FRAMES, same

import isthmus
from isthmus import engine as engine_module
from isthmus._lib import lib


def resident():
    """Bytes of this process in memory."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def quick(**options):
    return isthmus.Engine(segmenter=None, input_size=256, **options)


def test_a_closed_engine_says_so(frames):
    engine = quick()
    pending = engine.submit(frames[0])
    engine.close()
    engine.close()
    for call in (lambda: engine(frames[0]), pending.result, lambda: engine.info, engine.reset_tracks):
        with pytest.raises(isthmus.StateError, match="closed"):
            call()
    with pytest.raises(TypeError, match="one process"):
        __import__("pickle").dumps(engine)


def test_memory_is_flat_over_engines_frames_and_exceptions(frames):
    def cycle(i):
        with quick(frames_in_flight=3) as engine:
            kept = [engine.submit(frames[k % 3]) for k in range(5)]
            with pytest.raises(ValueError):
                engine(np.zeros((3, 3)))
            stream = engine.stream(frames * 2)
            next(stream)
            if i % 2:
                stream.close()  # with frames in flight
            assert len(kept[4].result()) == 1
            engine.submit(frames[0])
        with pytest.raises(isthmus.Error):
            quick(batch=0)

    for i in range(3):
        cycle(i)
    before = resident()
    for i in range(CYCLES):
        cycle(i)
    assert resident() - before < 16 << 20  # one engine holds 40 MiB


def test_frames_leave_nothing_behind(frames):
    small = np.ascontiguousarray(frames[0][::8, ::8])

    def some(count):
        """Frames in flight, and a bad one now and then that raises in the middle."""
        for i in range(count):
            yield small if i % 20 != 19 else np.zeros((3, 3))

    with quick() as engine:
        for _ in engine.stream(some(max(20, FRAMES // 50)), errors="yield"):
            pass
        before, blocks, found, failed = resident(), sys.getallocatedblocks(), 0, 0
        for frame in engine.stream(some(FRAMES), errors="yield"):
            failed += isinstance(frame, isthmus.Error)
            found += 1
        del frame
        gc.collect()
        assert (found, failed) == (FRAMES, FRAMES // 20)
        assert sys.getallocatedblocks() - blocks < 500 and resident() - before < 8 << 20
        assert not engine._pending and lib.held_in_flight(engine._handle) == 0


def test_a_second_thread_inside_gets_an_error(frames, monkeypatch):
    """One thread is held inside of the C call by the image that it reads, the other comes."""
    with quick() as engine:
        alone = engine(frames[0])
        refused, real = [], lib.held_receive

        class Meeting:
            def __getattr__(self, name):
                return getattr(lib, name)

            def held_receive(self, handle, batch, error):
                monkeypatch.undo()
                waiting = threading.Thread(target=real, args=(handle, batch, error))
                waiting.start()
                while waiting.is_alive() and not refused:
                    try:
                        engine.info  # noqa: B018
                    except isthmus.StateError as sentence:
                        refused.append(str(sentence))
                waiting.join()
                return error.code

        many = [np.repeat(np.repeat(frames[0], 6, 0), 6, 1)] * 20
        for image in many:  # until they have met
            monkeypatch.setattr(engine_module, "lib", Meeting())
            engine(image)
            if refused:
                break
        assert refused and "another thread is in this engine" in refused[0]
        assert same(engine(frames[0]), alone)


def test_threads_with_an_engine_each(frames, boxes_only):
    found, want = {}, boxes_only(frames[0])

    def work(i):
        with isthmus.Engine(segmenter=None) as engine:
            found[i] = list(engine.stream([frames[0]] * 3))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and all(same(frame, want) for each in found.values() for frame in each)


def test_an_interrupt_loses_no_frame(frames, monkeypatch):
    """SIGINT while C waits for a frame: the exception comes when C returns, with the frame."""
    with quick() as engine:
        alone = engine(frames[0])

        class Interrupted:
            def __getattr__(self, name):
                return getattr(lib, name)

            def held_receive(self, *args):
                status = lib.held_receive(*args)
                monkeypatch.undo()
                signal.raise_signal(signal.SIGINT)
                return status

        first, second = engine.submit(frames[0]), engine.submit(frames[0])
        monkeypatch.setattr(engine_module, "lib", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            first.result()
        assert first.done and not second.done
        assert same(first.result()[0], alone) and same(second.result()[0], alone)

        def interrupted():
            yield frames[0]
            signal.raise_signal(signal.SIGINT)
            yield frames[1]

        with pytest.raises(KeyboardInterrupt):
            list(engine.stream(interrupted()))
        assert same(engine(frames[0]), alone)


FORKED = """
import os, sys, warnings, numpy as np, isthmus
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are threads when it forks
engine = isthmus.Engine(segmenter=None, input_size=256)
image = np.zeros((64, 64), np.uint8)
pending = engine.submit(image)
child = os.fork()
if not child:
    try:
        engine(image)
    except isthmus.StateError as error:
        print(error, flush=True)
        engine.close()
        sys.exit(7)  # with atexit and destructors
    os._exit(1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 7, code
assert len(pending.result()) == 1 and engine(image) is not None
print("parent goes on")
"""

LEAVING = """
import sys, threading, numpy as np, isthmus
engine = isthmus.Engine(segmenter=None, input_size=256, frames_in_flight=4)
image = np.zeros((640, 640), np.uint8)
flying = [engine.submit(image) for _ in range(4)]
stream = engine.stream([image] * 9)
next(stream)
how = sys.argv[1]
if how == "thread":
    def forever():
        other = isthmus.Engine(segmenter=None, input_size=256)
        inside.set()
        try:
            while True:
                other(image)
        except isthmus.StateError:  # closed at exit
            pass
    inside = threading.Event()
    threading.Thread(target=forever, daemon=True).start()
    inside.wait()
if how == "exception":
    raise SystemExit("left by an exception")
print("left", flush=True)
"""


def run_python(code, *args):
    """A Python of its own; a hang is a failure of the whole run's limit."""
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=300)


def test_a_child_gets_a_clear_error_and_the_parent_goes_on():
    done = run_python(FORKED)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "before fork()" in done.stdout and done.stdout.endswith("parent goes on\n")


@pytest.mark.parametrize("how, code, says", [("plain", 0, "left"), ("thread", 0, "left"), ("exception", 1, "")])
def test_the_interpreter_exits_with_frames_in_flight(how, code, says):
    done = run_python(LEAVING, how)
    assert done.returncode == code and done.stdout.strip() == says, done.stderr
    assert done.stderr.strip() == ("left by an exception" if how == "exception" else "")


def test_without_an_icd_loader_the_import_says_what_is_missing(tmp_path):
    """The loader is found when the package is imported; here a file that is none stands in front of it."""
    (tmp_path / "libOpenCL.so.1").write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", "import isthmus"], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(tmp_path)))
    assert done.returncode == 1 and "ocl-icd-libopencl1" in done.stderr


def test_the_program_comes_with_the_package():
    done = subprocess.run([sys.executable, "-m", "isthmus", "--version"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == f"isthmus {isthmus.__version__}"
