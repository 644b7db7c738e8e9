#!/usr/bin/env python3
"""tests/golden/models/sam_vit.safetensors and sam_vit_b.keys: SAM's ViT encoder with its prompt encoder and mask decoder.

A whole ViT-B is 370 GFLOP a picture, too much for a test. So the published classes are built with other numbers: SIDE
pixels, DEPTH blocks of WIDTH channels of which GLOBAL see the whole map, and the windows of ViT-B, which do not divide
the map. The state_dict keys are ViT-B's own.

    make_sam_vit.py --sam CHECKOUT --out tests/golden/models
"""
import argparse
import os
from functools import partial

import numpy as np
import torch

import official
import synth

SEED, SIDE, DEPTH, WIDTH, GLOBAL, WINDOW = 1, 320, 3, 192, (1,), 14
ROWS, COLUMNS = 240, 320
BOXES = [[40.0, 30.5, 200.0, 180.25], [101.0, 60.0, 310.0, 235.0]]
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def build(root, side=SIDE, depth=DEPTH, width=WIDTH, seen=GLOBAL):
    """The parts of build_sam._build_sam, which fixes the side at 1024."""
    sam = official.import_sam(root)
    m, grid = sam.modeling, side // 16
    encoder = m.ImageEncoderViT(
        depth=depth, embed_dim=width, img_size=side, mlp_ratio=4, norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
        num_heads=width // 64, patch_size=16, qkv_bias=True, use_rel_pos=True, global_attn_indexes=seen,
        window_size=WINDOW, out_chans=256)
    prompts = m.PromptEncoder(embed_dim=256, image_embedding_size=(grid, grid), input_image_size=(side, side), mask_in_chans=16)
    decoder = m.MaskDecoder(
        num_multimask_outputs=3, transformer=m.TwoWayTransformer(depth=2, embedding_dim=256, mlp_dim=2048, num_heads=8),
        transformer_dim=256, iou_head_depth=3, iou_head_hidden_dim=256)
    return m.Sam(image_encoder=encoder, prompt_encoder=prompts, mask_decoder=decoder, pixel_mean=MEAN, pixel_std=STD).eval()


def fill(model, seed):
    model.load_state_dict({k: torch.from_numpy(synth.weight(k, tuple(v.shape), seed)) for k, v in model.state_dict().items()})
    return model


def halves(model):
    """Weights and what every layer answers, rounded to float16."""
    for p in model.parameters():
        p.copy_(p.half().float())
    for m in model.modules():
        if not list(m.children()) or type(m).__name__ == "Attention":
            m.register_forward_hook(lambda module, args, out: out.half().float() if torch.is_tensor(out) else out)
    return model


def run(model, dtype):
    model, out = model.to(dtype), {}
    picture = torch.from_numpy(synth.phantom(ROWS, COLUMNS, SEED)).permute(2, 0, 1)[None].to(dtype)
    picture = torch.nn.functional.pad((picture - model.pixel_mean) / model.pixel_std, (0, SIDE - COLUMNS, 0, SIDE - ROWS))
    x, code = model.image_encoder, model.prompt_encoder.pe_layer
    encode = code._pe_encoding  # coordinates come as float32 whatever the model is
    code._pe_encoding = lambda coords: encode(coords.to(dtype))

    def see(name, module):
        module.register_forward_hook(lambda m, args, y: out.update({name: y[0].permute(2, 0, 1)}))

    for i, block in enumerate(x.blocks):
        see("block%d" % i, block)
    x.blocks[0].register_forward_pre_hook(lambda m, args: out.update(patch_embed=args[0][0].permute(2, 0, 1)))
    embedding = x(picture)
    out["embedding"] = embedding[0]
    sparse, dense = model.prompt_encoder(points=None, boxes=torch.tensor(BOXES, dtype=dtype), masks=None)
    masks, iou = model.mask_decoder(image_embeddings=embedding, image_pe=model.prompt_encoder.get_dense_pe(),
                                    sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=False)
    out["box.masks"], out["box.iou"] = masks[:, 0], iou
    return {k: v.double().numpy() for k, v in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sam", required=True), p.add_argument("--out", required=True)
    a = p.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    exact, single, half = (run(change(fill(build(a.sam), SEED)), dtype) for change, dtype in
                           ((lambda m: m, torch.float64), (lambda m: m, torch.float32), (halves, torch.float32)))
    out = {}
    for name, v in exact.items():
        d, e = np.abs(single[name] - v), np.abs(half[name] - v)
        flat = v.reshape(-1)
        at = np.arange(min(flat.size, 2048), dtype=np.uint64) * np.uint64(2654435761) % np.uint64(flat.size)
        out[name] = (v if name.startswith("box.") else flat[at.astype(np.int64)]).astype(np.float32)
        out[name + ".stat"] = np.array([v.mean(), v.std(), v.min(), v.max(), np.sqrt((v * v).mean()), d.max(),
                                        np.sqrt((d * d).mean()), e.max(), np.sqrt((e * e).mean())], np.float32)
        print("%-12s %-16s std %.3f  float32 %.1e  half %.1e" % (name, v.shape, v.std(), d.max(), e.max()))
    print("pixels of the masks: %s of %d" % ([int((m > 0).sum()) for m in exact["box.masks"]], exact["box.masks"][0].size))
    synth.save_safetensors(os.path.join(a.out, "sam_vit.safetensors"), out)
    synth.save_keys(os.path.join(a.out, "sam_vit_b.keys"), official.build_sam_vit_b(a.sam).state_dict())


if __name__ == "__main__":
    main()
