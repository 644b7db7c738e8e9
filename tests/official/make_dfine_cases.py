#!/usr/bin/env python3
"""tests/golden/models/dfine_cases.safetensors: what the golden networks leave out.

Small inputs, one and three classes, a map that is not square, and weights changed on purpose so that the clamps act, a
box turns inside out and invalid anchors are chosen. Every change is a product with a power of two or a constant that
replaces values, so that tests/model_dfine_traps.c makes the same checkpoint bit for bit; CASES is repeated there.

    make_dfine_cases.py --dfine CHECKOUT --out tests/golden/models/dfine_cases.safetensors
"""
import argparse
import os

import numpy as np
import torch

import official
import synth

SEED = 7
L1 = "decoder.decoder.layers.1."
# name: size, classes, height, width, [(key, operation, value)], number of invalid tokens put among the queries
CASES = {
    "n_1class_256": ("n", 1, 256, 256, [], 0),
    "s_3classes_160": ("s", 3, 160, 160, [], 0),
    "m_1class_128": ("m", 1, 128, 128, [], 0),
    "l_2classes_128": ("l", 2, 128, 128, [], 0),
    "x_3classes_128": ("x", 3, 128, 128, [], 0),
    "s_192x128": ("s", 3, 192, 128, [], 0),
    "s_pos_clamp": ("s", 1, 128, 128, [("decoder.query_pos_head.layers.1.weight", "scale", 16.0)], 0),
    "s_half_clamp": ("s", 1, 128, 128, [(L1 + "linear2.weight", "scale", 2.0 ** 19)], 0),
    "s_inside_out": ("s", 1, 128, 128, [("decoder.dec_bbox_head.%d.layers.2.bias" % i, "bins", 4.0) for i in (0, 1, 2)], 0),
    "s_invalid": ("s", 1, 416, 416, [], 40),
}


def change(state, key, operation, value):
    """scale: the tensor times a power of two. bins: the first bin of the left and right side becomes `value`."""
    t = state[key].clone()
    if operation == "scale":
        t *= value
    else:
        t[0] = t[66] = value
    state[key] = t


def build(root, size, classes, h, w, changes):
    core = official.import_dfine(root)
    core.yaml_utils.load_config.__defaults__[0].clear()
    path = os.path.join(root, "configs", "dfine", "dfine_hgnetv2_%s_coco.yml" % size)
    cfg = core.YAMLConfig(path, num_classes=classes, eval_spatial_size=[h, w], remap_mscoco_category=False)
    cfg.yaml_cfg["HGNetv2"]["pretrained"] = False
    model = cfg.model.eval()
    state = {k: v if k.rsplit(".", 1)[-1] in synth.FIXED else torch.from_numpy(synth.weight(k, tuple(v.shape), SEED))
             for k, v in model.state_dict().items()}
    for c in changes:
        change(state, *c)
    model.load_state_dict(state, strict=True)
    return model.eval()


def run(model, image, dtype, order, invalid):
    """({order: tokens in query order, and the extremes seen}, logits, boxes)"""
    model, seen = model.to(dtype).deploy(), {"pos": 0.0, "ffn": 0.0, "order": order}
    decoder = model.decoder

    def choose(module, args, out):
        top = torch.topk(out[0].max(-1).values, 301)
        bad = torch.nonzero(~decoder.valid_mask[0, :, 0])[:, 0].tolist()
        spread = bad[::len(bad) // invalid][:invalid] if invalid else []
        seen["gap"] = float(top.values[299] - top.values[300])
        if seen["order"] is None:
            seen["order"] = [i for i in top.indices.tolist() if i not in spread][:300 - invalid] + spread
        rank = torch.full_like(out, -1e4)
        rank[0, seen["order"], 0] = torch.arange(300, 0, -1).to(out.dtype)
        return rank

    def largest(name):
        return lambda module, args, out: seen.update({name: max(seen[name], float(out.abs().max()))})

    decoder.enc_score_head.register_forward_hook(choose)
    decoder.query_pos_head.register_forward_hook(largest("pos"))
    for layer in decoder.decoder.layers:
        layer.linear2.register_forward_hook(largest("ffn"))
    out = model(image.to(dtype))
    return seen, out["pred_logits"][0].double().numpy(), out["pred_boxes"][0].double().numpy()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--dfine", required=True), a.add_argument("--out", required=True)
    a = a.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    out = {}
    for name, (size, classes, h, w, changes, invalid) in CASES.items():
        image = torch.from_numpy(synth.phantom(h, w, SEED)).permute(2, 0, 1)[None].float() / 255
        seen, logits, boxes = run(build(a.dfine, size, classes, h, w, changes), image, torch.float64, None, invalid)
        _, l32, b32 = run(build(a.dfine, size, classes, h, w, changes), image, torch.float32, seen["order"], invalid)
        out[name + ".order"] = np.array(seen["order"], np.int32)
        for part, v, v32 in (("logits", logits, l32), ("boxes", boxes, b32)):
            d = np.abs(v32 - v)
            out["%s.%s" % (name, part)] = v.astype(np.float32)
            out["%s.%s.stat" % (name, part)] = np.array([v.mean(), v.std(), v.min(), v.max(), np.sqrt((v * v).mean()),
                                                         d.max(), np.sqrt((d * d).mean()), 0, 0], np.float32)
        print("%-16s |pos| %.1f  |ffn| %.3g  smallest side %.3f  gap %.1e  float32: logits %.1e of %.2f, boxes %.1e" % (
            name, seen["pos"], seen["ffn"], boxes[:, 2:].min(), seen["gap"], np.abs(l32 - logits).max(), logits.std(),
            np.abs(b32 - boxes).max()))
    synth.save_safetensors(a.out, out)


if __name__ == "__main__":
    main()
