"""Makes tests/golden/weights: small PyTorch files as torch.save writes them, good ones and hostile ones.

    make_weights.py OUT [DFINE_N.safetensors]

Needs PyTorch. With a D-FINE-N checkpoint in official naming (make_checkpoint n 1 80 FILE) and transformers installed it
also writes names.txt: every needed tensor's official and Hugging Face name. The translated dictionary is loaded strictly
into DFineForObjectDetection there, so the pairs are proven.
"""
import argparse
import collections
import enum
import functools
import os
import pathlib
import re
import sys
import zipfile

import numpy as np
import torch

OUT = sys.argv[1]


def path(name):
    return os.path.join(OUT, name)


def repack(source, target, change, compression=zipfile.ZIP_STORED):
    """Copies a zip; change(name, data) gives new data, or None to leave the entry out."""
    with zipfile.ZipFile(path(source)) as a, zipfile.ZipFile(path(target), "w", compression) as b:
        for info in a.infolist():
            data = change(info.filename, a.read(info))
            if data is not None:
                b.writestr(zipfile.ZipInfo(info.filename), data, compression)


class Hostile:
    def __reduce__(self):
        return os.system, ("echo this must never run",)


def wrapped():
    """{"w": a tensor of 4 elements, (2^64 - 1) / 3 apart}: in 64 bits its last lies in front of its first."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" b"0X\3\0\0\0cpuK\x10tQ"
    stride = b"\x8a\x08" + ((2**64 - 1) // 3).to_bytes(8, "little") + b"\x85"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0K\4\x85" + stride + b"\x89)tR"
    with zipfile.ZipFile(path("wrapped.pth"), "w") as z:
        z.writestr(zipfile.ZipInfo("wrapped/data.pkl"), b"\x80\2}X\1\0\0\0w" + tensor + b"s.")
        z.writestr(zipfile.ZipInfo("wrapped/data/0"), bytes(64))


def state():
    return {
        "a.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
        "b.f16": torch.tensor([1.0, -0.5, 65504.0], dtype=torch.float16),
        "c.bf16": torch.tensor([1.0, -3.0, 0.15625], dtype=torch.bfloat16),
        "d.i64": torch.tensor([4, -(2**40)], dtype=torch.int64),
        "e.bool": torch.tensor([True, False, True]),
        "f.scalar": torch.tensor(7, dtype=torch.int64),
        "g.f64": torch.tensor([0.1], dtype=torch.float64),
        "h.i32": torch.tensor([-5], dtype=torch.int32),
        "i.u8": torch.tensor([200, 3], dtype=torch.uint8),
        "j.empty": torch.zeros(0, 3),
        "k.i16": torch.tensor([-300], dtype=torch.int16),
        "l.i8": torch.tensor([-7], dtype=torch.int8),
    }


class Mode(enum.Enum):
    MULTI = 1


class Keyed:
    """Made anew with an argument by keyword."""
    def __new__(cls, k=0):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"k": 1}


class Names(list):
    pass


def training():
    """What a training loop saves: everything of it but ema.module is to be passed over."""
    model = torch.nn.Linear(2, 2)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(1, 2)).sum().backward()
    opt.step()
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [3, 5])
    mark = lambda v: {"w": torch.full((2,), v)}
    return {"date": "2025-01-01T00:00:00", "last_epoch": 3, "loss": 0.25, "flags": (True, None, 2**70, {1, 2}),
            "model": mark(1.0), "optimizer": opt.state_dict(), "lr_scheduler": sched.state_dict(),
            "ema": {"module": mark(2.0), "updates": 12}}


def objects():
    """A state dict beside objects that are never built."""
    p = torch.nn.Parameter(torch.ones(2))
    opt = torch.optim.SGD([p], lr=np.float64(0.5), momentum=0.9)
    p.sum().backward()
    opt.step()
    return {"args": argparse.Namespace(lr=0.5, names=["a"]), "best": np.float64(0.25), "rng": np.arange(3),
            "seen": collections.Counter("aab"), "mode": Mode.MULTI, "keyed": Keyed(), "names_of": Names(["a"]),
            "last": collections.deque([0.5], maxlen=2), "step": functools.partial(int, "3"), "when": np.datetime64("2025-01-01"),
            "flags": np.array([1, None], dtype=object), "int8": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "sparse": torch.eye(2).to_sparse(), "solver": opt, "path": pathlib.PurePosixPath("a/b"), "optimizer": opt.state_dict(),
            "hook": Hostile(), "state_dict": {"w": torch.full((2,), 3.0), "z": torch.zeros(2, dtype=torch.complex64)}}


RULES = (
    (r"^backbone\.stem\.", r"model.backbone.model.embedder."),
    (r"^backbone\.stages", r"model.backbone.model.encoder.stages"),
    (r"^(encoder|decoder)\.input_proj\.(\d+)\.conv", r"model.\1_input_proj.\2.0"),
    (r"^(encoder|decoder)\.input_proj\.(\d+)\.norm", r"model.\1_input_proj.\2.1"),
    (r"^decoder\.decoder\.l", r"model.decoder.l"),
    (r"^decoder\.dec_score_head", r"model.decoder.class_embed"),
    (r"^decoder\.dec_bbox_head", r"model.decoder.bbox_embed"),
    (r"^decoder\.(pre_bbox|query_pos|up|reg_scale)", r"model.decoder.\1"),
    (r"^decoder\.denoising", r"model.denoising"),
    (r"^decoder\.enc_output\.proj", r"model.enc_output.0"),
    (r"^decoder\.enc_output\.norm", r"model.enc_output.1"),
    (r"^decoder\.enc_", r"model.enc_"),
    (r"^encoder\.", r"model.encoder."),
    (r"^(model\.encoder\.(?:fpn|pan)_blocks\.\d+)\.cv2\.0\.", r"\1.csp_rep1."),
    (r"^(model\.encoder\.(?:fpn|pan)_blocks\.\d+)\.cv3\.0\.", r"\1.csp_rep2."),
    (r"^(model\.encoder\.(?:fpn|pan)_blocks\.\d+)\.cv2\.1\.", r"\1.conv2."),
    (r"^(model\.encoder\.(?:fpn|pan)_blocks\.\d+)\.cv3\.1\.", r"\1.conv3."),
    (r"^(model\.encoder\.(?:fpn|pan)_blocks\.\d+)\.cv([14])\.", r"\1.conv\2."),
    (r"^(model\.encoder\.downsample_convs\.\d+)\.0\.cv", r"\1.conv"),
)


def hugging_face(key):
    for pattern, to in RULES:
        key = re.sub(pattern, to, key)
    if key.startswith("model.backbone"):
        key = key.replace(".conv.", ".convolution.").replace(".bn.", ".normalization.")
    if re.match(r"model\.(encoder\.encoder|decoder\.layers)", key):
        last = "norm2" if "encoder.encoder" in key else "norm3"
        key = (key.replace("linear", "fc").replace("norm1", "self_attn_layer_norm").replace(last, "final_layer_norm")
               .replace("cross_attn", "encoder_attn"))
    return key


def config_n():
    from transformers import DFineConfig
    c = DFineConfig(num_labels=80)
    b = c.backbone_config
    b.layer_type, b.hidden_sizes, b.stem_channels = "basic", [128, 256, 512, 1024], [3, 16, 16]
    b.stage_in_channels, b.stage_mid_channels = [16, 64, 256, 512], [16, 32, 64, 128]
    b.stage_out_channels, b.stage_num_blocks = [64, 256, 512, 1024], [1, 1, 2, 1]
    b.stage_downsample, b.stage_light_block = [False, True, True, True], [False, False, True, True]
    b.stage_kernel_size, b.stage_numb_of_layers = [3, 3, 5, 5], [3, 3, 3, 3]
    b.use_learnable_affine_block, b.out_indices = True, [3, 4]
    c.num_feature_levels, c.encoder_ffn_dim, c.encode_proj_layers, c.d_model = 2, 512, [1], 128
    c.encoder_hidden_dim, c.decoder_ffn_dim, c.encoder_in_channels = 128, 512, [512, 1024]
    c.decoder_n_points, c.decoder_in_channels, c.feat_strides = [6, 6], [128, 128], [16, 32]
    c.depth_mult, c.hidden_expansion, c.decoder_layers = 0.5, 0.34, 3
    return c


def names(official):
    from safetensors.torch import load_file
    from transformers import DFineForObjectDetection
    unknown = ("decoder.anchors", "decoder.valid_mask", "decoder.decoder.up", "decoder.decoder.reg_scale")
    translated, lines = {}, []
    for key, v in load_file(official).items():
        if key in unknown:
            continue
        name = hugging_face(key)
        parts = [name]
        if "in_proj_" in name:
            parts = [name.replace("in_proj_", p + "_proj.") for p in "qkv"]
        translated.update(zip(parts, v.chunk(len(parts)) if len(parts) > 1 else [v]))
        if not key.endswith("num_batches_tracked"):
            lines.append(key + " " + " ".join(parts) + "\n")
    for name in list(translated):                        # the heads are listed under two names
        if "_embed" in name and "denoising" not in name:
            translated[name.replace("model.decoder.", "")] = translated[name]
    result = DFineForObjectDetection(config_n()).load_state_dict(translated, strict=False)
    assert not result.missing_keys, result.missing_keys
    assert all(k.endswith("num_batches_tracked") for k in result.unexpected_keys), result.unexpected_keys
    with open(path("names.txt"), "w") as f:
        f.writelines(sorted(lines))


def main():
    os.makedirs(OUT, exist_ok=True)
    torch.manual_seed(0)
    torch.save(state(), path("plain.pth"))
    torch.save(state(), path("protocol4.pth"), pickle_protocol=4)
    torch.save(training(), path("training.pth"))
    torch.save(objects(), path("objects.pth"))
    torch.save(objects(), path("objects4.pth"), pickle_protocol=4)
    net = torch.nn.Sequential(torch.nn.Linear(2, 1))
    net[0].weight.data[:] = torch.tensor([[0.5, -2.0]])
    net[0].bias.data[:] = 3.0
    torch.save({"model": {"module." + k: v for k, v in net.state_dict().items()}, "names": ["bone", "tooth"]},
               path("model.pth"))
    torch.save({"model": dict(net.named_parameters()), "class_names": {0: "bone", 1: "tooth"}}, path("parameter.pth"))
    base = torch.arange(24, dtype=torch.float32)
    torch.save({"whole": base.view(4, 6), "tail": base[12:].view(3, 4), "transposed": base.view(4, 6).t(),
                "odd": base[1::2], "expanded": base[3:4].expand(5)}, path("views.pth"))
    torch.save({"model": {"w": torch.ones(1)}, "extra": Hostile()}, path("hostile.pth"))
    for name, value, protocol in (("legacy", state(), 2), ("legacy4", state(), 4), ("legacy_objects", objects(), 2)):
        torch.save(value, path(name + ".pth"), pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    torch.save([torch.ones(1)], path("list.pth"))
    torch.save({"w": torch.ones(1, dtype=torch.complex64)}, path("complex.pth"))
    keep = lambda name, data: data
    repack("plain.pth", "deflated.pth", keep, zipfile.ZIP_DEFLATED)
    repack("plain.pth", "no_storage.pth", lambda n, d: None if n.endswith("/data/0") else d)
    repack("plain.pth", "short_storage.pth", lambda n, d: d[:20] if n.endswith("/data/0") else d)
    repack("plain.pth", "big_endian.pth", lambda n, d: b"big" if n.endswith("byteorder") else d)
    repack("plain.pth", "no_pickle.pth", lambda n, d: None if n.endswith("data.pkl") else d)
    wrapped()
    torch.save({"w": torch.zeros(5 << 20)}, path("bomb.tmp"))
    repack("bomb.tmp", "bomb.pth", keep, zipfile.ZIP_DEFLATED)
    os.remove(path("bomb.tmp"))
    if len(sys.argv) > 2:
        names(sys.argv[2])


main()
