#!/usr/bin/env python3
"""isthmus beside ONNX Runtime and OpenVINO on the CPU: the same networks, the same weights, interleaved in one run.

    peers_cpu.py --dfine CHECKOUT --mobilesam CHECKOUT --work DIR [--bench BINARY] [--models n,s,tinyvit,decoder]
                 [--rounds 15] [--threads 2] [--skip-openvino] [--results PREFIX]
                 [--processor-time] [--precision fp32|bf16]
    peers_cpu.py --draw PREFIX

Exports the published models (D-FINE in its deployed form, 640x640, batch 1, network only; the TinyViT encoder at 1024; the
SAM prompt encoder and mask decoder for one box, one mask) with synthetic weights to ONNX in --work, writes the same
weights as safetensors for isthmus, and measures fp32 with --threads threads: ONNX Runtime with all its graph
optimisations, OpenVINO with INFERENCE_PRECISION_HINT f32 and the latency hint.

BINARY is bench_models. One child per network stays alive through the run:
    bench_models [--decoder] CHECKPOINT     prints "ready NAME" when everything is built
    "run\\n" on its standard input           runs one frame and prints its milliseconds; end of input ends it
PoCL uses as many threads as POCL_CPU_MAX_CU_COUNT says; it is set from --threads.

A round goes through the contenders in turn; each pauses until the other's spinning threads sleep, runs one frame that does
not count (caches) and three that do. Reported: median and least over all counted frames, and the ratio of the medians,
isthmus / peer (below 1: isthmus is faster). --models may name n, s, m, l, x, tinyvit, vit_b (SAM's ViT-B encoder, from the
same checkout) and decoder.

--processor-time reports the time that each contender's threads ran, which tells the work of a frame apart from the work of
other programs on the machine; use it with --threads 1, since threads that wait by spinning run too.

--precision bf16 asks OpenVINO for bfloat16 (INFERENCE_PRECISION_HINT) and isthmus too; ONNX Runtime stays at fp32, and
nothing is kept in files.

--results writes PREFIX.json (every number, machine, versions, command), PREFIX.md (the table) and PREFIX.svg (the plot);
networks that PREFIX.json has from an earlier run on the same machine stay. --draw writes the table and the plot again.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "official"))
if sys.argv[1:2] != ["--draw"]:         # which needs none of these
    import numpy as np
    import torch
    import official
    from make_e2e import synthetic

PAUSE_S, COUNTED = 0.02, 3


class Detector(torch.nn.Module if "torch" in sys.modules else object):
    """Network only: logits and boxes."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        r = self.model(image)
        return r["pred_logits"], r["pred_boxes"]


class Decoder(torch.nn.Module if "torch" in sys.modules else object):
    """Prompt encoder and mask decoder for one box in pixels of the 1024 frame."""

    def __init__(self, sam):
        super().__init__()
        self.prompt, self.decoder = sam.prompt_encoder, sam.mask_decoder
        self.register_buffer("position", sam.prompt_encoder.get_dense_pe().detach())

    def forward(self, embedding, box):
        sparse, dense = self.prompt(points=None, boxes=box, masks=None)
        return self.decoder(image_embeddings=embedding, image_pe=self.position, sparse_prompt_embeddings=sparse,
                            dense_prompt_embeddings=dense, multimask_output=False)


def save_weights(path, state):
    from safetensors.torch import save_file
    save_file({k: v.clone().contiguous() for k, v in state.items()}, path)


def prepare(a, name):
    """(onnx file, checkpoint for isthmus, its options, inputs) of one network; files are made once."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.random(shape, dtype=np.float32)
    onnx = os.path.join(a.work, name + ".onnx")
    if name in official.SIZES:
        weights, inputs, options = os.path.join(a.work, "dfine_%s.safetensors" % name), dict(image=draw(1, 3, 640, 640)), []
    else:
        weights = os.path.join(a.work, "sam_vit_b.safetensors" if name == "vit_b" else "mobile_sam.safetensors")
        inputs = dict(image=draw(1, 3, 1024, 1024)) if name != "decoder" else dict(
            embedding=draw(1, 256, 64, 64), box=np.array([[100, 120, 420, 380]], np.float32))
        options = ["--decoder"] if name == "decoder" else []
    if not (os.path.exists(onnx) and os.path.exists(weights)):
        if name in official.SIZES:
            model, _ = official.build_dfine(a.dfine, name)
            state = synthetic(model, 1)
            network = Detector(official.load_strict(model, state).deploy())
        else:
            sam = official.build_mobile_sam(a.mobilesam, "vit_b" if name == "vit_b" else "vit_t")
            state = synthetic(sam, 1)
            official.load_strict(sam, state)
            network = Decoder(sam) if name == "decoder" else sam.image_encoder
        save_weights(weights, state)
        torch.onnx.export(network.eval(), tuple(torch.from_numpy(v) for v in inputs.values()), onnx, input_names=list(inputs),
                          opset_version=17, dynamo=False)
        expect = network(*(torch.from_numpy(v) for v in inputs.values()))
        np.save(onnx + ".npy", np.sort((expect[0] if isinstance(expect, tuple) else expect).numpy().reshape(-1)))
    return onnx, weights, options, inputs


def onnx_runtime(onnx, inputs, threads):
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    o.log_severity_level = 3
    s = ort.InferenceSession(onnx, o, providers=["CPUExecutionProvider"])
    return lambda: s.run(None, inputs)


def openvino(onnx, inputs, threads, hint="f32"):
    import openvino as ov
    core = ov.Core()
    c = core.compile_model(core.read_model(onnx), "CPU", {
        "INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
    r = c.create_infer_request()
    fed = {k: ov.Tensor(v) for k, v in inputs.items()}
    return lambda: r.infer(fed, share_inputs=True, share_outputs=True)


def ran_ms(process):
    """Milliseconds that the threads of a process have run so far."""
    total = 0
    for task in os.listdir("/proc/%d/task" % process):
        with open("/proc/%d/task/%s/schedstat" % (process, task)) as f:
            total += int(f.read().split()[0])
    return total * 1e-6


def timed(run, onnx, processor, tolerance=0.01):
    """Milliseconds of a frame, once the peer has given the published answer (sorted: queries may come in another order)."""
    expect, got = np.load(onnx + ".npy"), np.sort(np.asarray(run()[0], np.float32).reshape(-1))
    if np.abs(got - expect).max() > tolerance * expect.std():
        sys.exit("%s: differs from the published model by %g" % (onnx, np.abs(got - expect).max()))

    def ms():
        t, ran = time.perf_counter(), time.process_time()
        run()
        return (time.process_time() - ran if processor else time.perf_counter() - t) * 1e3
    return ms


class Isthmus:
    """bench_models as a child that runs a frame per line."""

    def __init__(self, binary, options, weights, threads, processor):
        self.processor = processor
        env = dict(os.environ, POCL_CPU_MAX_CU_COUNT=str(threads), POCL_MAX_PTHREAD_COUNT=str(threads))
        self.child = subprocess.Popen([binary] + options + [weights], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        first = self.child.stdout.readline()
        if not first.startswith("ready"):
            sys.exit("%s did not get ready: %r" % (binary, first))

    def __call__(self):
        before = ran_ms(self.child.pid)
        self.child.stdin.write("run\n")
        self.child.stdin.flush()
        ms = float(self.child.stdout.readline())
        return ran_ms(self.child.pid) - before if self.processor else ms

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def machine():
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), cpu)
    return "%s, %d CPUs, load %.2f" % (cpu, os.cpu_count(), os.getloadavg()[0])


def measure(a, name):
    onnx, weights, options, inputs = prepare(a, name)
    sides, bf16 = {}, a.precision == "bf16"
    if a.bench:
        sides["isthmus"] = Isthmus(a.bench, options + bf16 * ["--bf16"], weights, a.threads, a.processor_time)
    sides["onnxruntime"] = timed(onnx_runtime(onnx, inputs, a.threads), onnx, a.processor_time)
    if not a.skip_openvino:
        sides["openvino"] = timed(openvino(onnx, inputs, a.threads, "bf16" if bf16 else "f32"), onnx, a.processor_time,
                                  0.5 if bf16 else 0.01)
    times = {s: [] for s in sides}
    for r in range(a.rounds + 1):
        for s, run in sides.items():
            time.sleep(PAUSE_S)
            run()
            got = [run() for _ in range(COUNTED)]
            times[s] += got if r else []                # the first round warms up
    if a.bench:
        sides["isthmus"].close()
    return {s: dict(median=statistics.median(t), least=min(t), runs=len(t)) for s, t in times.items()}


NAMES = dict(n="D-FINE-N", s="D-FINE-S", m="D-FINE-M", l="D-FINE-L", x="D-FINE-X", tinyvit="TinyViT encoder",
             vit_b="SAM ViT-B encoder", decoder="SAM decoder, 1 box")
COLOURS = dict(isthmus="#0b7285", onnxruntime="#adb5bd", openvino="#868e96")


def clock(r):
    return "processor time" if r.get("processor_time") else "wall time"


def table(r):
    """Markdown: medians in ms, and how many times as fast as the faster peer isthmus is."""
    sides = [s for s in COLOURS if any(s in m for m in r["models"].values())]
    peers = [s for s in sides if s != "isthmus"]
    frames = min(v["runs"] for m in r["models"].values() for v in m.values())
    lines = ["# isthmus beside ONNX Runtime and OpenVINO on a CPU, fp32", "",
             "%s; %d thread(s); %s." % (r["machine"], r["threads"], ", ".join("%s %s" % v for v in sorted(r["versions"].items()))),
             "Medians of %d or more frames, interleaved, %s; last run: `%s`." % (frames, clock(r), r["command"]), "",
             "| network | %s | isthmus is faster than the faster peer by |" % " | ".join("%s, ms" % s for s in sides),
             "|---|%s---|" % ("---|" * len(sides))]
    for name, m in r["models"].items():
        cells = ["%.1f" % m[s]["median"] if s in m else "" for s in sides]
        best = min((m[s]["median"] for s in peers if s in m), default=None)
        cells.append("%.2f" % (best / m["isthmus"]["median"]) if best and "isthmus" in m else "")
        lines.append("| %s | %s |" % (NAMES[name], " | ".join(cells)))
    return "\n".join(lines) + "\n"


def plot(r):
    """SVG: a group of bars per network, each as long as its time is of the slowest's."""
    bar, gap, left, width = 14, 16, 150, 640
    out, y = [], 40
    for name, m in r["models"].items():
        sides = [s for s in COLOURS if s in m]
        slowest = max(m[s]["median"] for s in sides)
        out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (left - 10, y + len(sides) * bar / 2 + 4, NAMES[name]))
        for s in sides:
            length = (width - left - 180) * m[s]["median"] / slowest
            out.append('<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (left, y, length, bar - 2, COLOURS[s]))
            out.append('<text x="%.1f" y="%d">%s %.1f ms</text>' % (left + length + 6, y + bar - 4, s, m[s]["median"]))
            y += bar
        y += gap
    head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">\n'
            '<rect width="100%%" height="100%%" fill="white"/>\n<text x="10" y="20" font-size="13">fp32, %d thread(s), %s: %s</text>\n')
    return head % (width, y, r["threads"], clock(r), r["machine"].split(", load")[0]) + "\n".join(out) + "\n</svg>\n"


def draw(prefix, r):
    for ending, text in ((".md", table(r)), (".svg", plot(r))):
        with open(prefix + ending, "w") as f:
            f.write(text)


def keep(prefix, r):
    """Adds to an earlier run's file what this one measured."""
    same = ("threads", "versions", "processor_time")
    if os.path.exists(prefix + ".json"):
        with open(prefix + ".json") as f:
            old = json.load(f)
        if all(old.get(k) == r[k] for k in same):
            r["models"] = {n: r["models"].get(n) or old["models"][n] for n in NAMES if n in r["models"] or n in old["models"]}
    with open(prefix + ".json", "w") as f:
        json.dump(r, f, indent=1)
    draw(prefix, r)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--draw":
        with open(sys.argv[2] + ".json") as f:
            return draw(sys.argv[2], json.load(f))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--dfine", "--mobilesam", "--work"):
        p.add_argument(name, required=True)
    p.add_argument("--bench")
    p.add_argument("--models", default="n,s,tinyvit,decoder")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--skip-openvino", action="store_true")
    p.add_argument("--processor-time", action="store_true")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--results")
    a = p.parse_args()
    if a.results and a.precision != "fp32":
        p.error("--results is for fp32")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    os.makedirs(a.work, exist_ok=True)
    import onnxruntime
    versions = dict(onnxruntime=onnxruntime.__version__, torch=torch.__version__)
    if not a.skip_openvino:
        import openvino as ov
        versions["openvino"] = ov.__version__
    print(machine(), "threads", a.threads, versions, flush=True)
    results = {}
    for name in a.models.split(","):
        r = results[name] = measure(a, name)
        line = ["%s %.1f ms (least %.1f)" % (s, v["median"], v["least"]) for s, v in r.items()]
        if "isthmus" in r:
            line += ["ratio to %s %.2f" % (s, r["isthmus"]["median"] / v["median"]) for s, v in r.items() if s != "isthmus"]
        print("%-8s %s" % (name, "; ".join(line)), flush=True)
        if a.results:
            keep(a.results, dict(machine=machine(), threads=a.threads, versions=versions, rounds=a.rounds, models=dict(results),
                                 processor_time=a.processor_time,
                                 command="peers_cpu.py --models %s --rounds %d --threads %d%s" % (
                                     a.models, a.rounds, a.threads, " --processor-time" * a.processor_time)))


if __name__ == "__main__":
    main()
