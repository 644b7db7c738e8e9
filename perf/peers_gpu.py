#!/usr/bin/env python3
"""isthmus beside PyTorch, and tinygrad on OpenCL, on an NVIDIA GPU: the same networks, the same weights, interleaved in one run.

    peers_gpu.py --dfine CHECKOUT --mobilesam CHECKOUT --work DIR --bench BINARY [--cases n:1,s:1,...] [--rounds 12]
                 [--modes eager,compile,graph,tinygrad] [--precision fp16|fp32] [--prepare-jobs 4] [--json FILE] [--plot FILE]
                 [--beam N --beam-seconds S --beam-cases s:1,...] [--peer-seconds S]

A case is NETWORK:COUNT: n, s, m, l, x (D-FINE, 640x640, network only, deployed form), tinyvit (encoder at 1024) with COUNT
images, vit_b (SAM's ViT-B encoder at 1024, from the same checkout), or decoder (SAM's prompt encoder and mask decoder, one
mask) with COUNT boxes. Contenders:
    eager    the published modules in half (position codes of prompts in float, as published), or in float without TF32
    compile  torch.compile of them
    graph    that, captured in one CUDA graph with every constant on the GPU
    tinygrad the published modules as ONNX files (constants folded by ONNX Runtime) on tinygrad's OpenCL device, captured by its
             TinyJit, in a child each (support/tinygrad_peer.py; --precision fp32, and only where --modes names it); beam is that
             with --beam N, tinygrad's search of kernel forms, which stops after --beam-seconds. A child (or a compilation) that is
             not ready --peer-seconds after its start, or a child whose outputs are not the published ones, is named and left out
    isthmus  BINARY (bench_models), in fp16 with --half, a child that runs a frame per line of input; what ISTHMUS_CAPS hides
             (-PTX_MMA,-PTX_WGMMA,-PTX_MEET,-PTX_BLOCK: what GPUs of other vendors do not have) is said beside the case
All time is the host's, from the call to the end of the device's work: launches count. A round goes through the contenders in
turn, each with frames that do not count before those that do. Reported: median, least, and isthmus / graph (below 1: isthmus
is faster). Clocks and temperature are nvidia-smi's while the case ran. torch.compile is slow, so each case is compiled in a
process of its own first, --prepare-jobs at a time, into inductor's cache; a contender that fails is named and left out.
"""
import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "official"))
import official                           # noqa: E402
from synth import FIXED, weight           # noqa: E402

CASES = "n:1,s:1,x:1,n:32,s:32,x:32,tinyvit:1,tinyvit:8,decoder:1,decoder:8,decoder:32"
COUNTED, UNCOUNTED = 10, 3
DEVICE = "cuda"
NAMES = ("eager", "compile", "graph", "tinygrad", "beam", "isthmus")
DTYPES = {"fp16": torch.float16, "fp32": torch.float32}


class Detector(torch.nn.Module):
    """Network only: logits and boxes."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        r = self.model(image)
        return r["pred_logits"], r["pred_boxes"]


class Decoder(torch.nn.Module):
    """Prompt encoder and mask decoder for boxes in pixels of the 1024 frame."""

    def __init__(self, sam, dtype):
        super().__init__()
        self.prompt, self.decoder, self.dtype = sam.prompt_encoder, sam.mask_decoder, dtype
        self.register_buffer("position", sam.prompt_encoder.get_dense_pe().detach())

    def forward(self, embedding, boxes):
        sparse, dense = self.prompt(points=None, boxes=boxes, masks=None)
        return self.decoder(image_embeddings=embedding, image_pe=self.position.to(self.dtype),
                            sparse_prompt_embeddings=sparse.to(self.dtype),
                            dense_prompt_embeddings=dense.to(self.dtype),
                            multimask_output=False)


def place_constants(module, dtype, device):
    """Moves tensors that are plain attributes, which .cuda() and .to(dtype) leave where they are. A scale read from a YAML
    file as a whole number would make everything behind it float."""
    for name, value in module.named_parameters():
        if name.endswith("reg_scale"):
            value.data = value.data.to(dtype)
    for m in module.modules():
        for name, value in list(vars(m).items()):
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                value = value.to(device)
                setattr(m, name, value.to(dtype) if value.is_floating_point() else value)


def synthetic(model):
    """state_dict with every generated entry filled; the others keep what the architecture gives."""
    return {k: v if k.rsplit(".", 1)[-1] in FIXED else torch.from_numpy(weight(k, tuple(v.shape), 1))
            for k, v in model.state_dict().items()}


def save_weights(path, state):
    from safetensors.torch import save_file
    part = "%s.%d" % (path, os.getpid())                 # cases that are prepared side by side may share a file
    save_file({k: v.clone().contiguous() for k, v in state.items()}, part)
    os.replace(part, path)


def build(a, network, count, device=DEVICE):
    """(module on the device, its inputs, the weights' file)."""
    dtype = DTYPES[a.precision]
    generator = torch.Generator().manual_seed(0)
    if network in official.SIZES:
        model, _ = official.build_dfine(a.dfine, network)
        state = synthetic(model)
        module = Detector(official.load_strict(model, state).deploy())
        shape, path = (count, 3, 640, 640), os.path.join(a.work, "dfine_%s.safetensors" % network)
    else:
        sam = official.build_mobile_sam(a.mobilesam, "vit_b" if network == "vit_b" else "vit_t")
        state = synthetic(sam)
        official.load_strict(sam, state)
        module = Decoder(sam, dtype) if network == "decoder" else sam.image_encoder
        shape = (1, 256, 64, 64) if network == "decoder" else (count, 3, 1024, 1024)
        path = os.path.join(a.work, "sam_vit_b.safetensors" if network == "vit_b" else "mobile_sam.safetensors")
    if not os.path.exists(path):
        save_weights(path, state)
    module = module.eval().to(device)
    if network == "decoder":
        module.decoder.to(dtype)
    else:
        module.to(dtype)
    place_constants(module, dtype, device)
    inputs = [torch.rand(shape, generator=generator).to(device, dtype)]
    if network == "decoder":
        corner = torch.rand((count, 2), generator=generator) * 600
        inputs.append(torch.cat([corner, corner + 200], 1).to(device))
    return module, inputs, path


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def waiting(run):
    """run() and then nothing left to do on the device: milliseconds."""
    def ms():
        t = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return (time.perf_counter() - t) * 1e3
    return ms


def captured(run):
    """run as one CUDA graph over the same inputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, out


def contenders(a, module, inputs, compilable):
    """name -> function that runs a frame and gives its milliseconds; what fails is in the second result."""
    sides, failed = {}, {}
    expect = first(module(*inputs)).float()
    if not torch.isfinite(expect).all():
        failed["eager"] = "a result is not finite"
    modes = a.modes.split(",")
    if "eager" in modes:
        sides["eager"] = waiting(lambda: module(*inputs))
    if not compilable:
        failed["compile"] = "failed, or took longer than %d s" % a.peer_seconds
        return sides, failed
    compiled = torch.compile(module, dynamic=False) if "compile" in modes or "graph" in modes else None
    for mode in modes:
        try:
            if mode == "compile":
                compiled(*inputs)
                sides[mode] = waiting(lambda: compiled(*inputs))
            elif mode == "graph":
                replay, out = captured(lambda: compiled(*inputs))
                sides[mode] = waiting(replay)
                got = first(out).float()
                if not torch.isfinite(got).all() or (got.mean() - expect.mean()).abs() > 0.05 * expect.std():
                    failed[mode] = "its mean is %g, eager's %g" % (got.mean(), expect.mean())
        except Exception as error:                       # the other contenders are worth measuring
            failed[mode] = "%s: %s" % (type(error).__name__, str(error).splitlines()[0][:200] if str(error) else "")
    return sides, failed


class Child:
    """A program that says `ready` or `failed` and then runs a frame per line."""

    def __init__(self, command, env=None):
        self.command, self.start = command, time.time()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ready(self, seconds):
        """What it said, if that came within the seconds since its start; else it ends here."""
        if select.select([self.child.stdout], [], [], max(0, self.start + seconds - time.time()))[0]:
            line = self.child.stdout.readline()
            if line.startswith("ready"):
                return line[len("ready"):].strip()
            why = line.strip() or "ended without a word"
        else:
            why = "not ready within %d s" % seconds
        self.close(kill=True)
        raise RuntimeError("%s: %s" % (os.path.basename(self.command[0]), why))

    def __call__(self, line="run"):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())

    def close(self, kill=False):
        if kill:
            self.child.kill()
        self.child.stdin.close()
        self.child.wait()


def isthmus(a, network, count, path):
    options = (["--half"] if a.precision == "fp16" else []) + ["--count", str(count)] + (["--decoder"] if network == "decoder" else [])
    child = Child([a.bench] + options + [path])
    child.ready(600)
    return child


def files_of(a, case):
    """(ONNX file, arrays) of a case for tinygrad."""
    stem = os.path.join(a.work, case.replace(":", "_"))
    return stem + ".onnx", stem + ".npz"


def export(a, case):
    """Writes a case's ONNX file, constants folded, with its inputs and the published module's outputs, from the CPU: the
    exporter makes some of a graph's constants there and does not take them with the rest on a GPU."""
    import numpy
    import onnx
    import onnxruntime
    module, inputs, _ = build(a, case.split(":")[0], int(case.split(":")[1]), "cpu")
    path, arrays = files_of(a, case)
    outputs = module(*inputs)
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    named = {"i%d" % k: v for k, v in enumerate(inputs)} | {"o%d" % k: v for k, v in enumerate(outputs)}
    numpy.savez(arrays, **{k: v.float().cpu().numpy() for k, v in named.items()})
    torch.onnx.export(module, tuple(inputs), path + ".whole", opset_version=17, dynamo=False)
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    o.optimized_model_filepath, o.log_severity_level = path + ".part", 3
    onnxruntime.InferenceSession(path + ".whole", o, providers=["CPUExecutionProvider"])
    model = onnx.load(path + ".part")
    standard = [v for v in model.opset_import if not v.domain]      # others are named there and not used
    del model.opset_import[:]
    model.opset_import.extend(standard)
    onnx.save(model, path)


def start_tinygrad(a, case):
    """tinygrad's child; it prepares while others do."""
    searched = (a.beam_cases or a.cases).split(",")
    jobs = max(2, os.cpu_count() // len(searched))
    command = [sys.executable, os.path.join(HERE, "support", "tinygrad_peer.py"), *files_of(a, case), "--beam",
               str(a.beam if case in searched else 0), "--beam-seconds", str(a.beam_seconds), "--beam-jobs", str(jobs),
               "--limit", str(a.peer_seconds)]
    if case.split(":")[0] in official.SIZES:
        command.append("--sorted")
    return Child(command, dict(os.environ, PARALLEL="4", CACHEDB=files_of(a, case)[0] + ".db"))


def smi(fields):
    text = subprocess.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], capture_output=True,
                          text=True).stdout.splitlines()
    return dict(zip(fields.split(","), [v.strip() for v in text[0].split(",")])) if text else {}


def add_tinygrad(child, seconds, sides, failed):
    """Adds tinygrad's contenders; what it said of itself, if anything."""
    try:
        said = json.loads(child.ready(seconds + 10))
    except RuntimeError as error:
        failed["tinygrad"] = str(error)
        return None
    if "failed" in said:
        failed["beam"] = said["failed"]
    for name, line in (("tinygrad", "run"), ("beam", "beam")):
        if line in said:
            sides[name] = lambda line=line: child(line)
    return said


def measure(a, case, tinygrad, compilable):
    network, count = case.split(":")[0], int(case.split(":")[1])
    module, inputs, path = build(a, network, count)
    sides, failed = contenders(a, module, inputs, compilable)
    child, said = None, None
    if tinygrad:
        said = add_tinygrad(tinygrad, a.peer_seconds, sides, failed)
    if a.bench:
        try:
            child = sides["isthmus"] = isthmus(a, network, count, path)
        except RuntimeError as error:
            failed["isthmus"] = str(error)
    times, clocks = {s: [] for s in sides}, {}
    for r in range(a.rounds):
        for s, run in sides.items():
            for _ in range(UNCOUNTED):
                run()
            times[s] += [run() for _ in range(COUNTED)]
        if r == a.rounds // 2:
            clocks = smi("clocks.sm,clocks.mem,temperature.gpu,power.draw")
    if said:
        tinygrad.close()
    if child:
        child.close()
    command = [os.path.basename(c) for c in child.command] if child else []
    result = dict(failed=failed, clocks=clocks, command=" ".join(command), hidden=os.environ.get("ISTHMUS_CAPS", ""))
    if said:
        result["tinygrad"] = said
    result["times"] = {s: dict(median=statistics.median(t), least=min(t), runs=len(t)) for s, t in times.items()}
    return result


def prepare(a):
    """Exports and compiles every case in processes of their own; what they make is found again in files and in inductor's
    cache. Returned: tinygrad's children, case -> child, each started when its file is there, and the cases that could not be
    compiled in --peer-seconds."""
    modes, cases, peers, uncompiled, running = a.modes.split(","), a.cases.split(","), {}, set(), []
    left = [("export", c) for c in cases] if "tinygrad" in modes else []
    if a.prepare_jobs and ("compile" in modes or "graph" in modes):
        left += [("compile", c) for c in cases]
    while left or running:
        while left and len(running) < max(1, a.prepare_jobs):
            step, case = left.pop(0)
            command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--dfine", a.dfine, "--mobilesam",
                       a.mobilesam, "--work", a.work, "--cases", case, "--precision", a.precision, "--only", step]
            with open(os.path.join(a.work, "%s_%s.log" % (case.replace(":", "_"), step)), "w") as log:
                running.append((step, case, time.time(), subprocess.Popen(command, stdout=log, stderr=log)))
        time.sleep(0.2)
        for entry in list(running):
            step, case, start, process = entry
            if step == "compile" and time.time() > start + a.peer_seconds:
                process.kill()
            if process.poll() is not None:
                running.remove(entry)
                if step == "compile" and process.returncode != 0:
                    uncompiled.add(case)
                print("%s %s: %.0f s%s" % (step, case, time.time() - start, "" if process.returncode == 0 else ", FAILED"), flush=True)
                if step == "export" and process.returncode == 0:
                    peers[case] = start_tinygrad(a, case)
    for peer in peers.values():                          # none prepares while another is measured
        select.select([peer.child.stdout], [], [], max(0, peer.start + a.peer_seconds + 10 - time.time()))
    return peers, uncompiled


def show(results):
    names = [n for n in NAMES if n in NAMES[:3] or any(n in r["times"] for r in results.values())]
    print("%-12s %s  isthmus/graph" % ("ms", " ".join("%9s" % n for n in names)))
    for case, r in results.items():
        t = r["times"]
        cells = ["%9.3f" % t[n]["median"] if n in t else "%9s" % "-" for n in names]
        ratio = "%.2f" % (t["isthmus"]["median"] / t["graph"]["median"]) if "isthmus" in t and "graph" in t else "-"
        print("%-12s %s  %s" % (case, " ".join(cells), ratio))
        for name, why in r["failed"].items():
            print("             %s: %s" % (name, why))


def plot(results, title, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(10, 3.6))
    names = [n for n in NAMES if any(n in r["times"] for r in results.values())]
    for k, name in enumerate(names):
        at = [(i + 0.2 * k, r["times"][name]["median"]) for i, r in enumerate(results.values()) if name in r["times"]]
        axes.bar([x for x, _ in at], [y for _, y in at], 0.19, label="PyTorch " + name if name in NAMES[:3] else name)
    axes.set_xticks([i + 0.1 * (len(names) - 1) for i in range(len(results))], list(results), fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("ms per frame or batch")
    axes.set_title(title, fontsize=9)
    axes.grid(axis="y", which="both", alpha=0.3)
    axes.set_ylim(top=axes.get_ylim()[1] * 2)
    axes.legend(fontsize=8, ncols=4, loc="upper center")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--dfine", "--mobilesam", "--work"):
        p.add_argument(name, required=True)
    p.add_argument("--bench")
    p.add_argument("--cases", default=CASES)
    p.add_argument("--modes", default="eager,compile,graph")
    p.add_argument("--precision", choices=sorted(DTYPES), default="fp16")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--prepare-jobs", type=int, default=4)
    p.add_argument("--json")
    p.add_argument("--plot")
    p.add_argument("--beam", type=int, default=0)
    p.add_argument("--beam-seconds", type=int, default=60)
    p.add_argument("--beam-cases")
    p.add_argument("--peer-seconds", type=int, default=600)
    p.add_argument("--only", choices=("export", "compile"), help=argparse.SUPPRESS)
    a = p.parse_args()
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    os.makedirs(a.work, exist_ok=True)
    if "tinygrad" in a.modes.split(",") and a.precision != "fp32":
        p.error("tinygrad is compared in fp32")
    if a.only == "export":
        return export(a, a.cases)
    if a.only == "compile":
        module, inputs, _ = build(a, a.cases.split(":")[0], int(a.cases.split(":")[1]))
        torch.compile(module, dynamic=False)(*inputs)
        torch.cuda.synchronize()
        return
    machine = dict(smi("name,driver_version,clocks.max.sm,clocks.max.mem,power.limit"), torch=torch.__version__,
                   cuda=torch.version.cuda)
    print(machine, flush=True)
    (peers, uncompiled), results = prepare(a), {}
    for case in a.cases.split(","):
        start = time.time()
        results[case] = measure(a, case, peers.get(case), case not in uncompiled)
        torch.compiler.reset()
        torch.cuda.empty_cache()
        print("measured %s in %.0f s: %s %s" % (case, time.time() - start, results[case]["times"], results[case]["clocks"]),
              results[case].get("tinygrad", ""), results[case]["failed"] or "", flush=True)
        if a.json:                                       # after each case: a run cut short keeps what it has
            with open(a.json, "w") as f:
                json.dump(dict(machine=machine, command=[os.path.basename(v) for v in sys.argv], rounds=a.rounds, precision=a.precision, cases=results), f, indent=1)
    show(results)
    if a.plot:
        plot(results, "%s, driver %s, torch %s, %s" % (machine.get("name"), machine.get("driver_version"), torch.__version__, a.precision), a.plot)


if __name__ == "__main__":
    main()
