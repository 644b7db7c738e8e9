#!/usr/bin/env python3
"""The page of `isthmus report` in a headless Chromium: layers that are switched off, the filter, hostile names, no script.

    python3 tests/report.py BUILD [FOLDER]     pictures of the page go to FOLDER

Needs Debian's chromium; without it the exit code is 77 (ctest: skipped). The run is made over a double of the engine.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True  # no __pycache__ in the source tree

import page
from page import expect

HOSTILE = "\"><script>seen=1</script><img src=x onerror=seen=1>"
N = 4


def write_png(path, width, height):
    rows = b"".join(b"\0" + bytes((x * 3 + y) % 256 for x in range(width)) for y in range(height))
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_run(program, folder):
    """A run with an image that fails and names that are markup; its page."""
    images, weights, out = (os.path.join(folder, name) for name in ("in", "weights", "out"))
    os.mkdir(images), os.mkdir(weights)
    for name in ("dfine_n_demo.safetensors", "mobile_sam_demo.safetensors"):
        open(os.path.join(weights, name), "w").close()
    for i in range(N):
        write_png(os.path.join(images, f"{i}{HOSTILE.replace('/', '')}.png"), 400 + 100 * i, 300)
    with open(os.path.join(images, "broken.png"), "w") as file:
        file.write("no image")
    names = os.path.join(folder, "names.json")
    with open(names, "w") as file:
        json.dump([HOSTILE + str(i) for i in range(80)], file)
    env = dict(os.environ, ISTHMUS_WEIGHTS_DIR=weights)
    code = subprocess.run([program, "predict", images, "-o", out, "--names", names, "--quiet"], env=env,
                          stderr=subprocess.DEVNULL).returncode
    expect(code == 7, "predict", code)
    expect(subprocess.run([program, "report", out, "--pictures", "3"], stderr=subprocess.DEVNULL).returncode == 0, "report")
    return os.path.join(out, "report.html")


def shown(b, selector):
    """How many of the elements are displayed."""
    return b.value(f"[...document.querySelectorAll({json.dumps(selector)})]"
                   ".filter(e => getComputedStyle(e).display !== 'none' && !e.closest('.off')).length")


def press(b, selector):
    b.value(f"document.querySelector({json.dumps(selector)}).scrollIntoView()")
    b.press(selector)


def test_page(b, url, folder):
    b.call("Network.enable")
    b.call("Page.navigate", url=url)
    b.wait("document.readyState === 'complete' && document.images.length === 3")
    expect(b.value("typeof seen") == "undefined", "a name has run")
    expect(b.value("[...document.images].every(i => i.complete && i.naturalWidth >= 400)"), "pictures are decoded")
    expect(b.value("document.querySelectorAll('script').length") == 1, "one script")
    text = b.value("document.body.innerText")
    expect(f"{N} images, {3 * N} objects of 3 classes, 1 failure." in text, "counts:", text[:200])
    expect(HOSTILE + "11" in text, "names are shown as they are")
    expect(b.value("[...document.querySelectorAll('.chart rect title')].map(t => +t.textContent.split(': ')[1])"
                   ".reduce((a, c) => a + c)") == 3 * N, "the histogram has all objects")
    for kind, mark in (("masks", ".m"), ("boxes", ".b"), ("names", ".n")):
        expect(shown(b, mark) == 9, kind, "at first", shown(b, mark))
        press(b, f"label[for={kind}]")
        expect(shown(b, mark) == 0, kind, "switched off", shown(b, mark))
        press(b, f"label[for={kind}]")
        expect(shown(b, mark) == 9, kind, "switched on again")
    expect(b.value("document.getElementById('shown').textContent") == "9 of 9 objects", "all objects are shown")
    b.value("(e => { e.value = '0.7'; e.dispatchEvent(new Event('input')); })(document.getElementById('least'))")
    expect(shown(b, ".o") == 6 and b.value("document.getElementById('shown').textContent") == "6 of 9 objects", "score")
    b.value("(e => { e.value = '1'; e.dispatchEvent(new Event('change')); })(document.getElementById('class'))")
    expect(shown(b, ".o") == 3 and b.value("document.getElementById('shown').textContent") == "3 of 9 objects", "class")
    over = b.value("""(() => { const p = document.querySelector('.picture'), i = p.querySelector('img').getBoundingClientRect(),
        s = p.querySelector('svg').getBoundingClientRect();
        return Math.max(Math.abs(i.x - s.x), Math.abs(i.y - s.y), Math.abs(i.width - s.width), Math.abs(i.height - s.height)); })()""")
    expect(over < 1, "the layers lie on the image", over)
    expect(b.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out")
    expect(b.value("performance.getEntriesByType('resource').every(e => e.name.startsWith('data:'))"), "nothing is fetched")
    grounds = []
    for scheme in ("light", "dark"):
        b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.append(b.value("getComputedStyle(document.body).backgroundColor"))
        b.value("scrollTo(0, 0)")
        if folder:
            b.picture(os.path.join(folder, f"report-{scheme}.png"))
    expect(grounds[0] != grounds[1], "light and dark", grounds)


def test_without_script(b, url):
    b.call("Emulation.setScriptExecutionDisabled", value=True)
    b.call("Page.reload")
    b.wait("document.readyState === 'complete' && document.images.length === 3")
    expect(b.value("document.getElementById('filter').hidden"), "without script there is no filter")
    expect("objects of 3 classes" in b.value("document.body.innerText"), "the text is there without script")
    press(b, "label[for=masks]")
    expect(shown(b, ".m") == 0, "layers are switched off without script")


def main():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("left out: no chromium here (Debian: chromium)")
        return 77
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        url = "file://" + make_run(os.path.join(sys.argv[1], "tests", "isthmus_fake"), work)
        b = page.Browser(program, os.path.join(work, "profile"))
        test_page(b, url, folder)
        test_without_script(b, url)
        expect(not b.complaints, "the browser complains:", b.complaints)
        b.close()
    print(f"{page.failures} failed")
    return 1 if page.failures else 0


if __name__ == "__main__":
    sys.exit(main())
