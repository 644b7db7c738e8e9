#!/usr/bin/env python3
"""Compiles the kernels of whole frames for GPUs that are not there and tells what they need.

    offline.py --build BUILD [--clang CLANG] [--bitcode FOLDER] [--ocloc OCLOC] [--out perf/results/offline_targets]

Which programs there are, the product says itself: perf/list_programs records a frame (D-FINE-N with MobileSAM, D-FINE-X;
fp32 and half) with the capabilities and the number of compute units that the target would have, and writes the text of
every program as it is compiled. Each text then goes through the target's compiler: ocloc (Debian: intel-opencl-icd) for
Intel, clang with rocm-device-libs for AMD. Registers, spills, local memory and occupancy are what the compilers report.
Nothing is run: no device of these is needed. BUILD is a build folder with ISTHMUS_PERF and ISTHMUS_TESTS.

ocloc does not define the macro of cl_intel_subgroup_matrix_multiply_accumulate, as a driver does for devices that have
the extension; it is defined here where the capability is claimed.

Some packages can be unpacked without being installed (dpkg -x); their libraries are then found by LD_LIBRARY_PATH.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import tempfile

import yaml

# Compiler target: who makes it, an example, compute units as OpenCL counts them, capabilities that it has or lacks.
TARGETS = {
    "dg2": ("intel", "Arc A770", 512, "+INTEL_DPAS,-FP64"),
    "tgllp": ("intel", "Iris Xe, Tiger Lake", 96, "-FP64"),
    "gfx90a": ("amd", "Instinct MI210", 104, "+AMD_MFMA"),
    "gfx1030": ("amd", "Radeon RX 6900 XT", 40, ""),
    "gfx1100": ("amd", "Radeon RX 7900 XTX", 48, "+AMD_WMMA"),
}
FRAMES = [("n", "sam"), ("x", None)]
INTEL_MATRIX = "-Dcl_intel_subgroup_matrix_multiply_accumulate "
HIDDEN = "-CPU,-SIMD16,-X86_BF16,-X86_AMX"


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


def checkpoints(build, folder):
    paths = {}
    for model in ("n", "x", "sam"):
        paths[model] = os.path.join(folder, model + ".safetensors")
        r = run([os.path.join(build, "tests/make_checkpoint"), model, "1", "80", paths[model]])
        if r.returncode:
            raise SystemExit(r.stdout)
    return paths


def programs_of(build, target, models, folder):
    """Every program of the target's frames, each once: {text, op, isa, options, kernels, uses: [frame]}."""
    _, _, units, caps = TARGETS[target]
    found = {}
    for detector, segmenter in FRAMES:
        for half in (False, True):
            out = os.path.join(folder, f"{target}-{detector}-{half}")
            os.mkdir(out)
            command = [os.path.join(build, "perf/list_programs"), models[detector], out]
            command += ["--half"] * half + (["--segmenter", models[segmenter]] if segmenter else [])
            env = dict(os.environ, ISTHMUS_CAPS=",".join(filter(None, [HIDDEN, caps])), ISTHMUS_DEVICE="Portable",
                       POCL_MAX_PTHREAD_COUNT=str(units))
            r = run(command, env=env)
            if r.returncode:
                raise SystemExit(f"{' '.join(command)}: {r.stdout}")
            frame = f"D-FINE-{detector.upper()}{' + MobileSAM' if segmenter else ''}, {'half' if half else 'fp32'}"
            with open(os.path.join(out, "programs.txt")) as lines:
                for line in lines:
                    name, op, isa, options, kernels, launches = line.rstrip("\n").split("\t")
                    with open(os.path.join(out, name)) as f:
                        text = f.read()
                    key = hashlib.sha256((options + "\0" + text).encode()).hexdigest()
                    p = found.setdefault(key, {"text": text, "op": op, "isa": isa, "options": options,
                                               "kernels": [], "uses": {}})
                    p["uses"][frame] = int(launches)
                    p["kernels"] = sorted(set(p["kernels"]) | set(kernels.split(",")))
    return found


AMD_NUMBERS = {"VGPRs": "vgprs", "AGPRs": "agprs", "SGPRs": "sgprs", "ScratchSize [bytes/lane]": "scratch_bytes",
               "VGPRs Spill": "vgpr_spills", "SGPRs Spill": "sgpr_spills", "LDS Size [bytes/block]": "local_bytes",
               "Occupancy [waves/SIMD]": "waves"}


def compile_amd(tools, target, source, options, folder):
    r = run([tools.clang, "-x", "cl", "-cl-std=CL1.2", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-O3",
             f"--rocm-device-lib-path={tools.bitcode}", "-Rpass-analysis=kernel-resource-usage", *options.split(),
             "-c", source, "-o", os.path.join(folder, "k.o")])
    if r.returncode:
        return None, r.stdout
    kernels, now = {}, None
    for line in r.stdout.splitlines():
        m = re.search(r"remark:\s+(.+?): (\S+) \[-Rpass-analysis", line)
        if m and m[1] == "Function Name":
            now = kernels.setdefault(m[2], {})
        elif m and m[1] in AMD_NUMBERS:
            now[AMD_NUMBERS[m[1]]] = int(m[2])
    return kernels, r.stdout


def compile_intel(tools, target, source, options, folder):
    r = run([tools.ocloc, "compile", "-file", source, "-device", target, "--format", "zebin", "-options",
             "-cl-std=CL1.2 " + INTEL_MATRIX * ("INTEL_DPAS" in TARGETS[target][3]) + options, "-out_dir", folder, "-output", "k", "-output_no_suffix"])
    binary, info = os.path.join(folder, "k"), os.path.join(folder, "info")
    if r.returncode or not os.path.exists(binary):
        return None, r.stdout
    run([tools.objcopy, "--dump-section", ".ze_info=" + info, binary, os.devnull])
    with open(info) as f:
        described = yaml.safe_load(f)["kernels"]
    kernels = {}
    for k in described:
        env, buffers = k["execution_env"], k.get("per_thread_memory_buffers") or []
        spill = sum(b["size"] for b in buffers if b["type"] == "scratch")
        kernels[k["name"]] = {"registers": env["grf_count"], "simd": env["simd_size"], "spill_bytes": spill,
                              "private_bytes": sum(b["size"] for b in buffers) - spill,
                              "local_bytes": env.get("slm_size", 0)}
    return kernels, r.stdout


def compile_one(tools, target, program):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "k.cl")
        with open(source, "w") as f:
            f.write(program["text"])
        compiler = compile_amd if TARGETS[target][0] == "amd" else compile_intel
        return compiler(tools, target, source, program["options"], folder)


def first_error(log):
    lines = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    return (lines or log.splitlines() or ["no output"])[0][:200]


def measure(tools, target, models, folder):
    programs = programs_of(tools.build, target, models, folder)
    with concurrent.futures.ThreadPoolExecutor(tools.jobs) as pool:
        results = list(pool.map(lambda p: compile_one(tools, target, p), programs.values()))
    rows = []
    for p, (kernels, log) in zip(programs.values(), results):
        row = {k: p[k] for k in ("op", "isa", "options", "uses")}
        if kernels is None:
            row["error"] = first_error(log)
        else:
            row["kernels"] = {k: kernels[k] for k in p["kernels"]}
        rows.append(row)
    return sorted(rows, key=lambda r: (r["op"], r["options"]))


def spills(k):
    return k.get("spill_bytes", 0) + k.get("vgpr_spills", 0) > 0


def cells(k):
    local = f"{k['local_bytes'] / 1024:.1f}"
    if "simd" in k:
        return [f"{k['registers']}, SIMD{k['simd']}", str(k["spill_bytes"]), str(k["private_bytes"]), local, ""]
    vector = str(k["vgprs"]) + (f" + {k['agprs']}" if k.get("agprs") else "")
    return [vector, str(k["vgpr_spills"]), str(k["scratch_bytes"]), local, str(k["waves"])]


def write_tables(record, prefix):
    with open(prefix + ".json", "w") as f:
        json.dump(record, f, indent=1)
        f.write("\n")
    out = ["# Kernels compiled for GPUs that were not there", "",
           "Written by `perf/offline.py --build BUILD`; nothing here was run. Frames: D-FINE-N with MobileSAM and D-FINE-X, each in fp32 "
           "and half, 640 x 640, one image. Compilers: " +
           ", ".join(f"{k} {v}" for k, v in record["versions"].items()) + ".", "",
           "| target | example | capabilities | programs | do not compile | kernels | with spills | waves/SIMD, least |",
           "|---|---|---|---|---|---|---|---|"]
    for target, t in record["targets"].items():
        kernels = [k for r in t["programs"] for k in r.get("kernels", {}).values()]
        waves = [k["waves"] for k in kernels if "waves" in k]
        out.append(f"| {target} | {t['example']} | {t['capabilities'] or 'portable'} | {len(t['programs'])} | "
                   f"{sum('error' in r for r in t['programs'])} | {len(kernels)} | {sum(map(spills, kernels))} | "
                   f"{min(waves) if waves else ''} |")
    for target, t in record["targets"].items():
        out += ["", f"## {target} ({t['example']})", "",
                "Registers: of a thread, and the width it was compiled for; spills and private memory in bytes of a thread."
                if TARGETS[target][0] == "intel" else
                "Registers: VGPRs (+ AGPRs) of a lane; spills in registers, private memory in bytes of a lane.", "",
                "| op | options | kernel | registers | spills | private | local KiB | waves/SIMD |", "|---|---|---|---|---|---|---|---|"]
        for r in t["programs"]:
            if "error" in r:
                out.append(f"| {r['op']} | `{r['options']}` | does not compile: {r['error']} | | | | | |")
            for name, k in r.get("kernels", {}).items():
                out.append(f"| {r['op']} | `{r['options']}` | {name} | " + " | ".join(cells(k)) + " |")
    with open(prefix + ".md", "w") as f:
        f.write("\n".join(out) + "\n")


def version(command, pattern):
    m = re.search(pattern, run(command).stdout)
    return m[1] if m else "?"


def package(name):
    return version(["dpkg-query", "-W", "-f", "${Version}", name], r"(\S+)")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", required=True)
    a.add_argument("--clang", default="clang-19")
    a.add_argument("--bitcode", default="/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
    a.add_argument("--ocloc", default="ocloc")
    a.add_argument("--objcopy", default="llvm-objcopy-14")
    a.add_argument("--targets", default=",".join(TARGETS))
    a.add_argument("--jobs", type=int, default=os.cpu_count())
    a.add_argument("--versions", default="", help="rocm-device-libs=VERSION,.. of packages that are only unpacked")
    a.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "results/offline_targets"))
    tools = a.parse_args()
    versions = {"clang": version([tools.clang, "--version"], r"version (.*)"),
                "rocm-device-libs": package("rocm-device-libs"), "intel-opencl-icd (ocloc)": package("intel-opencl-icd"),
                "libigc1": package("libigc1")}
    versions.update(v.split("=", 1) for v in tools.versions.split(",") if v)
    record = {"versions": versions, "targets": {}}
    with tempfile.TemporaryDirectory() as folder:
        models = checkpoints(tools.build, folder)
        for target in tools.targets.split(","):
            _, example, units, caps = TARGETS[target]
            rows = measure(tools, target, models, folder)
            record["targets"][target] = {"example": example, "compute_units": units, "capabilities": caps,
                                         "programs": rows}
            bad = [r for r in rows if "error" in r]
            print(f"{target}: {len(rows)} programs, {len(bad)} do not compile, "
                  f"{sum(spills(k) for r in rows for k in r.get('kernels', {}).values())} kernels with spills", flush=True)
            for r in bad:
                print(f"  {r['op']} {r['options']}: {r['error']}")
    write_tables(record, tools.out)


if __name__ == "__main__":
    main()
