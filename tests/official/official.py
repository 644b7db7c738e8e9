"""The published PyTorch models, loaded from a checkout of their own repositories.

Owns: importing the official D-FINE and MobileSAM code from a path, building a model, loading a checkpoint strictly.
Nothing of that code is stored here; this module only calls it. What must hold: every tensor of the checkpoint is used
and every tensor of the model is filled, with the documented exceptions of `load_strict`.
"""
import glob
import importlib
import importlib.machinery
import os
import sys
import types
import warnings

import torch

SIZES = "nsmlx"

# Versions of Pillow by the order in which they resample, as `isthmus predict --resize-order` names it.
PILLOW_ORDERS = {"auto": ("11", "12"), "horizontal": ("11", "12"), "pillow13": ("13",)}


def check_pillow(order="auto"):
    """Ends the program where this Pillow makes other pixels than isthmus does in `order`."""
    import PIL
    if PIL.__version__.split(".")[0] not in PILLOW_ORDERS[order]:
        sys.exit("Pillow %s resamples in another order than '%s': install %s" %
                 (PIL.__version__, order, " or ".join("'pillow==%s.*'" % v for v in PILLOW_ORDERS[order])))


def _stand_in(name):
    """An empty module for a dependency that only training needs. It has a spec, which other packages ask for when they
    look what is installed (importlib.util.find_spec)."""
    class _Any:
        def __init__(self, *a, **k):
            pass
    m = types.ModuleType(name)
    m.__getattr__ = lambda attr: _Any if not attr.startswith("__") else None
    m.__path__ = []
    m.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = m
    parent, _, leaf = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], leaf, m)


def import_dfine(root):
    """Imports the official package from its checkout and returns (package, root)."""
    root = os.path.abspath(root)
    if root not in sys.path:
        sys.path.insert(0, root)
    for name in ("tensorboard", "calflops", "transformers", "faster_coco_eval", "loguru"):
        try:
            __import__(name)
        except ImportError:
            _stand_in(name)
            if name == "tensorboard":
                _stand_in("torch.utils.tensorboard")
            if name == "faster_coco_eval":
                for sub in ("core", "core.mask", "utils", "utils.pytorch"):
                    _stand_in(name + "." + sub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import src.core as core
    return core


def build_dfine(root, size, classes=80, image=640):
    """(model, postprocessor) of one size in evaluation mode, from the official YAML file, with random weights."""
    core = import_dfine(root)
    core.yaml_utils.load_config.__defaults__[0].clear()  # a shared default argument: sizes would leak into each other
    path = os.path.join(root, "configs", "dfine", "dfine_hgnetv2_%s_coco.yml" % size)
    cfg = core.YAMLConfig(path, num_classes=classes, eval_spatial_size=[image, image], remap_mscoco_category=False)
    cfg.yaml_cfg["HGNetv2"]["pretrained"] = False
    return cfg.model.eval(), cfg.postprocessor.eval()


def build_mobile_sam(root, encoder="vit_t"):
    """The official MobileSAM (vit_t), or SAM with another encoder of its registry, in evaluation mode. Call eval() again
    after loading weights."""
    root = os.path.abspath(root)
    if root not in sys.path:
        sys.path.insert(0, root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mobile_sam
        return mobile_sam.sam_model_registry[encoder]().eval()


def import_sam(root):
    """The package segment_anything of a checkout of facebookresearch/segment-anything."""
    root = os.path.abspath(root)
    if root not in sys.path:
        sys.path.insert(0, root)
    import segment_anything
    return segment_anything


def build_sam_vit_b(root):
    """The official SAM with its ViT-B encoder in evaluation mode; MedSAM's checkpoint fits it too."""
    return import_sam(root).sam_model_registry["vit_b"]().eval()


def sam_predictor(model):
    """The SamPredictor of the package that the model is from."""
    package = importlib.import_module(type(model).__module__.split(".")[0])
    return package.SamPredictor(model)


def read_checkpoint(path):
    """name -> tensor, by the rule of the official tools: ema.module if there is one, else model, else the plain dict."""
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file
        return load_file(path)
    d = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(d.get("ema"), dict) and "module" in d["ema"]:
        return d["ema"]["module"]
    if isinstance(d.get("model"), dict):
        return d["model"]
    return d


def load_strict(model, state):
    """Strict load. A file may leave out num_batches_tracked and the D-FINE constants that the model computes itself."""
    own = model.state_dict()
    optional = ("num_batches_tracked", "anchors", "valid_mask", "num_points_scale", "up", "reg_scale")
    full = dict(state)
    for k, v in own.items():
        if k not in full and k.rsplit(".", 1)[-1] in optional:
            full[k] = v
    for k, v in full.items():
        if k in own and own[k].dtype == torch.bool:
            full[k] = v.bool()
    model.load_state_dict(full, strict=True)
    return model.eval()


def recognise_dfine(state):
    """(size, classes) of an official D-FINE state dict, from its tensors."""
    classes = state["decoder.enc_score_head.weight"].shape[0]
    stem = state["backbone.stem.stem1.conv.weight"].shape[0]
    width = state["decoder.query_pos_head.layers.1.weight"].shape[0]
    size = {16: "n" if width == 128 else "s", 24: "m"}.get(stem)
    if size is None:
        size = "x" if state["backbone.stem.stem4.conv.weight"].shape[0] == 64 else "l"
    return size, classes


def image_files(folder):
    """Image files of a folder by name, or the file itself."""
    if os.path.isfile(folder):
        return [folder]
    ends = (".png", ".jpg", ".jpeg")
    return sorted(f for f in glob.glob(os.path.join(folder, "*")) if f.lower().endswith(ends))
