#!/usr/bin/env python3
"""The page of `isthmus segment --serve` in a headless Chromium: real mouse events, then the pixels on the canvas.

    python3 tests/page.py BUILD [FOLDER]     pictures of the page go to FOLDER

Needs Debian's chromium; without it the exit code is 77 (ctest: skipped). The browser is driven through its DevTools
protocol on a pipe, so that Python alone is enough. Masks are the server's own answers to the same prompts, asked here;
that these are those of `segment --points` is tests/cli_serve.c. The checkpoint is synthetic: its masks are arbitrary.
"""
import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, HEIGHT = 1280, 860
DEADLINE = 120  # seconds for anything awaited; nothing else depends on time

failures = 0


def expect(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", *what)


# ---- the browser ----

class Browser:
    """A Chromium with one page."""

    def __init__(self, program, folder):
        to_browser, self.out = os.pipe()
        self.inward, from_browser = os.pipe()

        def pipes():  # the protocol's: 3 in, 4 out
            os.dup2(to_browser, 30), os.dup2(from_browser, 31)
            os.dup2(30, 3), os.dup2(31, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--force-device-scale-factor=1", f"--window-size={WIDTH},{HEIGHT}",
             f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=pipes, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self.number, self.session, self.rest, self.complaints = 0, None, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.inward, 1 << 20)
                if not more:
                    sys.exit("the browser has ended")
                self.rest += more
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(answer["params"]["exceptionDetails"])
            if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                self.complaints.append(answer["params"]["entry"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            sys.exit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + DEADLINE
        while not self.value(expression):
            if time.monotonic() > end:
                sys.exit(f"waited in vain for {expression}; the page says: {self.value(STATUS)}")
            time.sleep(0.02)

    def mouse(self, kind, x, y, button="left", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1, **more)

    def click(self, x, y, button="left", modifiers=0):
        self.mouse("mousePressed", x, y, button, modifiers=modifiers)
        self.mouse("mouseReleased", x, y, button, modifiers=modifiers)

    def press(self, selector):
        x, y = self.value(f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
                          f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        self.click(x, y)

    def key(self, key, code, modifiers=0):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except SystemExit:
            pass
        self.process.wait()


STATUS = "(document.getElementById('status') || {}).textContent"
SHIFT, CONTROL = 8, 2


# ---- pictures and masks ----

def read_png(data):
    """Rows of pixels, each a tuple of the channels: 8 bits, not interlaced."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and not interlace
            channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
        if kind == b"IDAT":
            packed += body
        at += 12 + size
    raw, stride, rows = zlib.decompress(packed), width * channels, []
    above = bytearray(stride)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            p = left + above[i] - corner
            near = min((abs(p - left), 0, left), (abs(p - above[i]), 1, above[i]), (abs(p - corner), 2, corner))[2]
            line[i] = line[i] + (0, left, above[i], (left + above[i]) // 2, near)[kind] & 255
        rows.append([tuple(line[x:x + channels]) for x in range(0, stride, channels)])
        above = line
    return rows


def read_rle(rle):
    """Rows of booleans of a COCO run length encoding."""
    (height, width), text, runs, at = rle["size"], rle["counts"], [], 0
    while at < len(text):
        value = shift = 0
        while True:
            c = ord(text[at]) - 48
            at += 1
            value |= (c & 31) << shift
            shift += 5
            if not c & 32:
                break
        if c & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
    flat = [bool(i % 2) for i, run in enumerate(runs) for _ in range(run)]
    assert len(flat) == width * height
    return [[flat[x * height + y] for x in range(width)] for y in range(height)]


# ---- the test ----

class Page:
    def __init__(self, browser, url):
        self.browser, self.url, self.image = browser, url, 0

    def ask(self, path, prompt=None):
        body = None if prompt is None else json.dumps(prompt).encode()
        with urllib.request.urlopen(self.url + path, body) as answer:
            return answer.read()

    def masks(self, prompt, kind="masks"):
        return json.loads(self.ask(f"images/{self.image}/{kind}", prompt))["masks"]

    def begin(self):
        self.browser.wait(f"{STATUS} === 'click the object'")
        self.picture = read_png(self.ask(f"images/{self.image}"))
        self.height, self.width = len(self.picture), len(self.picture[0])
        self.measure()

    def measure(self):
        """Where the canvas is."""
        self.left, self.top, wide = self.browser.value(
            "(r => [r.x, r.y, r.width])(document.getElementById('view').getBoundingClientRect())")
        self.scale = wide / self.width

    def at(self, x, y):
        """Where on the screen the centre of a pixel is."""
        return self.left + (x + 0.5) * self.scale, self.top + (y + 0.5) * self.scale

    def answered(self, count):
        """The page has the masks of its prompt."""
        self.browser.wait(f"!asking && masks.length === {count} && document.querySelectorAll('#masks button').length === {count}")

    def canvas(self):
        """What the canvas shows at the centre of each pixel of the image."""
        flat = self.browser.value("""(() => {
            const c = document.getElementById('view'), k = c.width / picture.width, h = picture.height, w = picture.width;
            const all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, out = [];
            for (let y = 0; y < h; y++)
              for (let x = 0; x < w; x++) {
                const i = 4 * (Math.floor((y + 0.5) * k) * c.width + Math.floor((x + 0.5) * k));
                out.push(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
              }
            return out; })()""")
        return [[(v >> 16, v >> 8 & 255, v & 255) for v in flat[y * self.width:(y + 1) * self.width]]
                for y in range(self.height)]

    def check(self, what, mask, marks=(), box=None):
        """Inside of the mask the picture is tinted, outside it is itself; near contours, marks and the box anything is."""
        shown, reach, seen = self.canvas(), 10 / self.scale, [0, 0]
        for y in range(2, self.height - 2):
            for x in range(2, self.width - 2):
                inside = mask[y][x]
                if any(mask[y + v][x + u] != inside for v in range(-2, 3) for u in range(-2, 3)):
                    continue
                if any(abs(x - u) < reach and abs(y - v) < reach for u, v in marks):
                    continue
                if box and (min(abs(x - box[0]), abs(x - box[2])) < 5 or min(abs(y - box[1]), abs(y - box[3])) < 5):
                    continue
                seen[inside] += 1
                want = self.picture[y][x]
                if inside:
                    want = [round(p * 0.55 + c * 0.45) for p, c in zip(want, (10, 132, 255))]
                if max(abs(a - b) for a, b in zip(shown[y][x], want)) > 3:
                    expect(False, f"{what}: pixel {x},{y} is {shown[y][x]}, want {want}, inside: {inside}")
                    return
        expect(min(seen) > 50, f"{what}: only {seen} pixels were compared")

    def color(self, x, y):
        return self.canvas()[y][x]


def best(masks):
    return max(range(len(masks)), key=lambda i: masks[i]["score"])


def test_clicks(page, folder):
    b = page.browser
    x, y = 110, 80
    page.check_empty = page.canvas()
    expect(page.check_empty[5][5] == page.picture[5][5], "the picture is drawn as it is")

    b.click(*page.at(x, y))
    page.answered(3)
    sent = b.value("points()")
    expect(len(sent) == 1 and abs(sent[0][0] - x) < 0.05 and abs(sent[0][1] - y) < 0.05 and sent[0][2] == 1, "click:", sent)
    masks = page.masks({"points": sent})
    chosen = best(masks)
    expect(b.value("chosen") == chosen, "the mask of the best score is shown first")
    page.check("one click", read_rle(masks[chosen]["segmentation"]), [(x, y)])
    disc = page.color(x, y)
    expect(disc[1] > 120 and disc[0] < 80, "a green disc where it was clicked", disc)
    scores = b.value("[...document.querySelectorAll('#masks button')].map(e => e.textContent)")
    expect(scores == [f"{m['score']:.3f}" for m in masks], "scores", scores)
    if folder:
        b.picture(os.path.join(folder, "page-click.png"))

    other = (chosen + 1) % 3
    b.press(f"#masks button:nth-child({other + 1})")
    page.check("another mask", read_rle(masks[other]["segmentation"]), [(x, y)])

    b.click(*page.at(10, 12), button="right")
    b.wait("!asking && points().length === 2")
    page.answered(3)
    sent = b.value("points()")
    expect(sent[1][2] == 0, "a right click is out:", sent)
    disc = page.color(10, 12)
    expect(disc[0] > 180 and disc[1] < 90, "a red disc where it was right clicked", disc)
    masks = page.masks({"points": sent})
    page.check("in and out", read_rle(masks[best(masks)]["segmentation"]), [(x, y), (10, 12)])

    b.key("z", 90, CONTROL)
    b.wait("!asking && points().length === 1")
    b.click(*page.at(20, 30), modifiers=SHIFT)
    b.wait("!asking && points().length === 2")
    expect(b.value("points()[1][2]") == 0, "a click with Shift is out")
    b.press("#undo")
    b.wait("!asking && points().length === 1")
    b.press("#out")
    b.click(*page.at(20, 30))
    b.wait("!asking && points().length === 2")
    expect(b.value("points()[1][2]") == 0, "out is for touch screens")
    b.press("#in")
    b.press("#clear")
    b.wait("!asking && !masks.length")
    expect(page.canvas() == page.check_empty, "clear leaves the picture")


def test_box(page, folder):
    b = page.browser
    x0, y0, w, h = 60, 60, 110, 70
    b.mouse("mousePressed", *page.at(x0 - 0.5, y0 - 0.5))
    for k in range(1, 5):
        b.mouse("mouseMoved", *page.at(x0 - 0.5 + w * k / 4, y0 - 0.5 + h * k / 4), buttons=1)
    b.mouse("mouseReleased", *page.at(x0 - 0.5 + w, y0 - 0.5 + h))
    page.answered(3)
    box = b.value("box()")
    expect(all(abs(p - q) < 0.6 for p, q in zip(box, (x0, y0, x0 + w, y0 + h))), "dragged:", box)
    masks = page.masks({"box": box})
    page.check("a box", read_rle(masks[best(masks)]["segmentation"]), box=box)
    b.press("#one")
    page.answered(1)
    one = page.masks({"box": box}, "mask")
    page.check("one mask", read_rle(one[0]["segmentation"]), box=box)
    if folder:
        b.picture(os.path.join(folder, "page-box.png"))
    b.press("#keep")
    b.wait("kept.length === 1 && !masks.length && document.querySelectorAll('#kept li').length === 1")
    b.press("#three")
    return one[0]


def test_zoom(page, folder):
    """The middle stays where it is, and clicks mean what is under them."""
    b, before = page.browser, page.scale
    middle = page.width // 2, page.height // 2
    x, y = page.at(*middle)
    for _ in range(2):
        b.press("#larger")
    page.measure()
    expect(abs(page.scale / before - 4) < 0.01, "four times as large", page.scale / before)
    expect(max(abs(p - q) for p, q in zip(page.at(*middle), (x, y))) < 2 * page.scale, "the middle has moved")
    b.click(*page.at(*middle))
    page.answered(3)
    sent = b.value("points()")
    expect(max(abs(p - q) for p, q in zip(sent[0], middle)) < 0.05, "a click on the zoomed image:", sent)
    masks = page.masks({"points": sent})
    page.check("zoomed", read_rle(masks[best(masks)]["segmentation"]), [middle])
    if folder:
        b.picture(os.path.join(folder, "page-zoom.png"))
    b.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-100, modifiers=CONTROL)
    b.wait("zoom === 5")
    for _ in range(3):
        b.press("#smaller")
    page.measure()
    expect(abs(page.scale - before) < 0.01, "as before", page.scale, before)
    b.press("#clear")
    b.wait("!asking && !masks.length")


def test_phone(page, folder):
    """On a narrow screen nothing is cut off, and a finger clicks."""
    b, middle, before = page.browser, (page.width // 2, page.height // 2), page.scale
    b.call("Emulation.setDeviceMetricsOverride", width=400, height=820, deviceScaleFactor=2, mobile=True)
    b.call("Emulation.setTouchEmulationEnabled", enabled=True)
    b.wait("innerWidth === 400 && view.getBoundingClientRect().right < 400")
    expect(b.value("document.documentElement.scrollWidth") <= 400, "the page is wider than the screen")
    page.measure()
    x, y = page.at(*middle)
    b.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.answered(3)
    sent = b.value("points()")
    expect(len(sent) == 1 and max(abs(p - q) for p, q in zip(sent[0], middle)) < 1, "touched:", sent)
    if folder:
        b.picture(os.path.join(folder, "page-phone.png"))
    b.value("clear()")
    b.call("Emulation.setTouchEmulationEnabled", enabled=False)
    b.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    b.wait(f"!asking && !masks.length && Math.abs(view.getBoundingClientRect().width / picture.width - {before}) < 1e-3")
    page.measure()


def wait_for_file(path):
    end = time.monotonic() + DEADLINE
    while not os.path.exists(path):
        if time.monotonic() > end:
            sys.exit(f"{path} was not downloaded")
        time.sleep(0.02)
    with open(path, "rb") as file:
        return file.read()


def test_downloads(page, folder, kept):
    b = page.browser
    session, b.session = b.session, None
    b.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
    b.session = session
    b.press("#rle")
    rle = json.loads(wait_for_file(os.path.join(folder, "frame-001-rle.json")))
    expect(rle == kept["segmentation"], "RLE")
    b.press("#coco")
    coco = json.loads(wait_for_file(os.path.join(folder, "frame-001-coco.json")))
    expect(coco["images"] == [{"id": 1, "file_name": "frame-001.png", "width": page.width, "height": page.height}],
           coco["images"])
    annotation = coco["annotations"][0]
    expect(len(coco["annotations"]) == 1 and annotation["segmentation"] == kept["segmentation"] and
           annotation["bbox"] == kept["bbox"] and annotation["area"] == kept["area"] and annotation["image_id"] == 1 and
           annotation["category_id"] == coco["categories"][0]["id"], "COCO", annotation)
    b.press("#png")
    rows, mask = read_png(wait_for_file(os.path.join(folder, "frame-001-mask.png"))), read_rle(kept["segmentation"])
    expect(all(row[x][:3] == ((255,) * 3 if mask[y][x] else (0,) * 3) for y, row in enumerate(rows) for x in range(page.width)),
           "PNG")


def test_other_images(page, folder):
    """Another image from the list; the page asks before what is kept is lost."""
    b = page.browser
    b.click(*page.at(200, 150))
    page.answered(3)
    if folder:
        b.picture(os.path.join(folder, "page-kept.png"))
    b.value("window.confirm = () => false")
    b.press("#after")
    expect(b.value("index") == 0, "nothing is lost without a question")
    b.value("window.confirm = () => true")
    b.press("#after")
    b.wait(f"index === 1 && {STATUS} === 'click the object'")
    expect(b.value("kept.length + actions.length + masks.length") == 0, "another image begins anew")
    expect(b.value("document.getElementById('image').value") == "1", "the list shows it")
    names = b.value("[...document.getElementById('image').options].map(o => o.text)")
    expect(names == ["frame-001.png", "frame-002.png"], names)


def test_everything(page, folder):
    """All masks become kept ones; where none is, the picture stays."""
    b = page.browser
    page.image = 1
    page.begin()
    b.press("#everything")
    b.wait("kept.length > 0 && !document.getElementById('everything').disabled")
    masks = [m for m in page.masks({}, "everything") if m["area"]]
    expect(b.value("kept.map(m => m.segmentation)") == [m["segmentation"] for m in masks], "everything is kept")
    expect(b.value("document.querySelectorAll('#kept li').length") == len(masks), "and listed")
    shown, bits, same = page.canvas(), [read_rle(m["segmentation"]) for m in masks], [0, 0]
    for y in range(page.height):
        for x in range(page.width):
            inside = any(rows[y][x] for rows in bits)
            if not inside and shown[y][x] != page.picture[y][x]:
                expect(False, f"pixel {x},{y} of no mask is {shown[y][x]}, want {page.picture[y][x]}")
                return
            same[inside] += shown[y][x] == page.picture[y][x]
    expect(same[1] < 0.02 * sum(m["area"] for m in masks), "masks are tinted", same)
    if folder:
        b.picture(os.path.join(folder, "page-everything.png"))
    expect(len(masks) > 2, "several masks", len(masks))
    b.press("#kept li:first-child button")
    expect(b.value("kept.length") == len(masks) - 1, "one is removed")
    b.press("#empty")
    expect(b.value("kept.length") == 0 and page.canvas() == page.picture, "all are removed")


def test_end(page, server, folder):
    """A server that has ended is said."""
    b = page.browser
    server.send_signal(signal.SIGTERM)
    expect(server.wait() == 0, "exit code", server.returncode)
    b.click(*page.at(page.width // 2, page.height // 2))
    b.wait("!asking && document.getElementById('status').className === 'bad'")
    expect(b.value(STATUS) == "the server does not answer", b.value(STATUS))
    if folder:
        b.picture(os.path.join(folder, "page-end.png"))


def run(build, program, folder, pictures):
    sam = os.path.join(folder, "sam.safetensors")
    subprocess.run([os.path.join(build, "tests", "make_checkpoint"), "sam", "g:1", "1", sam], check=True)
    frames = [os.path.join(SOURCE, "weights", "demo", f"frame-00{i}.png") for i in (1, 2)]
    server = subprocess.Popen([os.path.join(build, "isthmus"), "segment", *frames, "--serve", "0", "--segmenter", sam,
                               "--segmenter-size", "256", "--points-per-side", "4", "--pred-iou-thresh", "0.3",
                               "--stability-score-thresh", "0.1", "--box-nms-thresh", "1", "--quiet"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        if not url:
            sys.exit("the server has ended")
        browser = Browser(program, os.path.join(folder, "profile"))
        page = Page(browser, url)
        browser.call("Page.navigate", url=url)
        page.begin()
        test_clicks(page, pictures)
        test_zoom(page, pictures)
        test_phone(page, pictures)
        kept = test_box(page, pictures)
        test_downloads(page, folder, kept)
        test_other_images(page, pictures)
        test_everything(page, pictures)
        expect(not browser.complaints, "the browser complains:", browser.complaints)
        test_end(page, server, pictures)
        browser.close()
    finally:
        server.kill()


def main():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("left out: no chromium here (Debian: chromium)")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run(sys.argv[1], program, folder, sys.argv[2] if len(sys.argv) > 2 else None)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
