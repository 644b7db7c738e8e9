"""Compares dfine.py and mobilesam.py with the official code: python check_official.py D-FINE_FOLDER MOBILESAM_FOLDER

Both ways of loading a state dict must be strict, and outputs in float64 must agree to 1e-6; where the official code computes
prompts in float32, to 1e-5. Nothing official is needed for training.
"""
import os
import sys
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "official")]
import dfine
import mobilesam
import official


def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, v in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith("running_var"):
                v.copy_(torch.rand(v.shape, generator=gen) + 0.5)
            elif name.endswith(("running_mean", "bias")) and "reg_scale" not in name:
                v.add_(torch.randn(v.shape, generator=gen) * 0.1)
            elif name.endswith(("attention_biases", "no_mask_embed.weight", "lab.scale")) or "bbox_head" in name:
                v.add_(torch.randn(v.shape, generator=gen) * 0.05)


def report(name, a, b, limit=1e-6):
    diff = (a - b).abs().max().item()
    print(f"{name}: largest difference {diff:.3g}")
    if not diff < limit:
        sys.exit(f"{name} differs from the official code")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    own = dfine.DFine(3, 640)
    randomise(own, 1)
    ref, _ = official.build_dfine(sys.argv[1], "n", 3, 640)
    ref.load_state_dict(own.state_dict(), strict=True)
    own.load_state_dict(ref.state_dict(), strict=True)
    own, ref = own.double().eval(), ref.double().eval()
    x = torch.rand(1, 3, 640, 640, generator=gen, dtype=torch.float64)
    with torch.no_grad():
        a, b = own(x)["layers"][-1], ref(x)
    report("D-FINE logits", a[0], b["pred_logits"])
    report("D-FINE boxes", a[1], b["pred_boxes"])

    own = mobilesam.MobileSam()
    randomise(own, 2)
    ref = official.build_mobile_sam(sys.argv[2])
    ref.load_state_dict(own.state_dict(), strict=True)
    own.load_state_dict(ref.state_dict(), strict=True)
    own, ref = own.double().eval(), ref.double().eval()
    x = torch.randn(1, 3, 1024, 1024, generator=gen, dtype=torch.float64)
    box = torch.tensor([[100.0, 200.0, 700.0, 640.5], [3.0, 4.0, 50.0, 900.0]], dtype=torch.float64)
    with torch.no_grad():
        masks, iou = own(x, box, torch.tensor([0, 0]))
        emb = ref.image_encoder(x)
        report("MobileSAM embedding", own.image_encoder(x), emb)
        ref.prompt_encoder.float()                  # the official prompt encoder computes in float32 whatever it is given
        sparse, dense = ref.prompt_encoder(points=None, boxes=box.float(), masks=None)
        rm, ri = ref.mask_decoder(image_embeddings=emb, image_pe=ref.prompt_encoder.get_dense_pe().double(),
                                  sparse_prompt_embeddings=sparse.double(), dense_prompt_embeddings=dense.double(), multimask_output=False)
    scale = rm.abs().max()
    report("MobileSAM mask logits (relative)", masks[:, :1] / scale, rm / scale, 1e-5)
    report("MobileSAM predicted IoU", iou[:, :1], ri, 1e-4)


if __name__ == "__main__":
    main()
