"""Synthetic checkpoints and images: pure integer functions of (seed, name, index).

tests/golden/README.md is the definition; this is its Python form.  Nothing here
depends on the platform: every value is one correctly rounded IEEE operation away from
an exact integer, so a C program gets the same bits.
"""
import json, math, struct
import numpy as np

M64, ODD = (1 << 64) - 1, 0x9E3779B97F4A7C15


def fnv1a64(data):
    h = 0xCBF29CE484222325
    for c in data:
        h = ((h ^ c) * 0x100000001B3) & M64
    return h


def draw24(name, n, seed):
    """n integers in [0, 2^24): element i is the top 24 bits of splitmix64 at state base + i."""
    base = fnv1a64(name.encode()) ^ ((seed * ODD) & M64)
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(base) + np.uint64(ODD)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.int64)


# Keys whose last component is one of these keep the value the architecture gives them.
FIXED = ("num_batches_tracked", "anchors", "valid_mask", "num_points_scale", "up", "reg_scale")
# Embedding tables and other rank-2 tensors that are not matrices.
TABLES = ("point_embeddings.", "not_a_point_embed.", "no_mask_embed.", "class_embed.", "iou_token.", "mask_tokens.",
          "positional_encoding_gaussian_matrix")
# Variance gain of a weight: the first substring found in the key decides; none found: 1.
GAINS = (
    (".conv1.conv.", 1.0), (".bottlenecks.", 1.4), ("downsample.conv.", 1.0), ("downsample_convs", 1.0),
    ("input_proj", 1.0), ("lateral_convs", 1.0), ("aggregation.1.", 1.6), ("in_proj_weight", 2.0),
    ("self_attn.out_proj.", 0.25), ("attention_weights", 4.0), ("sampling_offsets", 1.0),
    ("query_pos_head.layers.0.", 8.0), ("enc_bbox_head.layers.2", 0.0625), ("pre_bbox_head.layers.2", 0.0625), ("score_head", 2.0), ("backbone.stem.", 3.0), ("backbone.", 2.2),
    (".cv4.", 4.0), ("fpn_blocks", 2.2), ("pan_blocks", 2.2), (".q_proj.", 4.0), (".k_proj.", 4.0), (".qkv.", 4.0),
    ("output_upscaling", 4.0), ("patch_embed", 2.0), (".conv1.c.", 2.0), (".conv2.c.", 2.0),
    ("fc2", 2.0), ("lin2", 2.0), ("layers.1.weight", 2.0))


def weight(key, shape, seed):
    """Value of one state_dict entry as a float32 array (not for FIXED keys)."""
    n, last, rank = int(np.prod(shape)), key.rsplit(".", 1)[-1], len(shape)
    k = draw24(key, n, seed) - (1 << 23)
    u, i = k * 2.0 ** -23, np.arange(n)
    if last == "running_var":
        v = 1 + u / 4
    elif last == "running_mean":
        v = u / 8
    elif last == "scale" or (rank == 1 and last == "weight"):
        v = 1 + u / 8
    elif last == "attention_biases":
        v = 2 * u
    elif last == "pos_embed":
        v = u
    elif any(t in key for t in TABLES):
        v = u
    elif rank == 1:
        if key.endswith("enc_bbox_head.layers.2.bias"):
            v = u / 4 + np.where(i >= 2, 0.75, 0.0)
        elif "score_head" in key:
            v = u / 2 - 2.5
        elif "sampling_offsets" in key:
            v = 2 * u
        else:
            v = u / 8
    elif "local_conv.c.weight" in key:
        v = u / 4 + (i % 9 == 4)
    else:
        row = n // shape[0]
        std3 = math.sqrt(3.0 * next((g for s, g in GAINS if s in key), 1.0) / row)
        if rank == 4 and shape[1] >= 2:       # half of each filter's mean is taken out
            r = k.reshape(-1, row)
            v = (2 * row * r - r.sum(1, keepdims=True)) * (std3 / (16777216.0 * row))
        else:
            v = std3 * u
    return v.astype(np.float32).reshape(shape)


def phantom(h, w, seed):
    """Integer-only RGB uint8 test image: two octaves of lattice noise, ellipses, speckle."""
    y, x = np.mgrid[0:h, 0:w].astype(np.int64)

    def lattice(part, bits, planes):
        s, gh, gw = 1 << bits, (h >> bits) + 2, (w >> bits) + 2
        g = (draw24(part, planes * gh * gw, seed) >> 16).reshape(planes, gh, gw)
        gy, gx, fy, fx = y >> bits, x >> bits, y & (s - 1), x & (s - 1)
        return (g[:, gy, gx] * (s - fy) * (s - fx) + g[:, gy, gx + 1] * (s - fy) * fx
                + g[:, gy + 1, gx] * fy * (s - fx) + g[:, gy + 1, gx + 1] * fy * fx) >> (2 * bits)

    v = (3 * lattice("phantom.coarse", 6, 3) + lattice("phantom.fine", 5, 1)) >> 2
    for b in draw24("phantom.blobs", 64, seed).reshape(8, 8):
        dx, dy = x - ((b[0] * w) >> 24), y - ((b[1] * h) >> 24)
        rx, ry = w // 32 + ((b[2] * (w // 6)) >> 24), h // 32 + ((b[3] * (h // 6)) >> 24)
        inside = dx * dx * ry * ry + dy * dy * rx * rx <= rx * rx * ry * ry
        for c in range(3):
            v[c] += np.where(inside, ((b[4 + c] * 161) >> 24) - 60, 0)
    s = draw24("phantom.speckle", h * w, seed).reshape(h, w)
    v = (np.clip(v, 0, 255) * (192 + (s >> 17))) >> 8
    v = np.stack([v[c] + ((s >> (4 * c)) & 7) - 4 for c in range(3)], -1)
    return np.clip(v, 0, 255).astype(np.uint8)


def save_safetensors(path, tensors):
    tensors = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
    names = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8"}
    head, off = {}, 0
    for k, v in tensors.items():
        head[k] = dict(dtype=names[str(v.dtype)], shape=list(v.shape), data_offsets=[off, off + v.nbytes])
        off += v.nbytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw + b"".join(v.tobytes() for v in tensors.values()))


def save_keys(path, state_dict):
    """Text manifest: one line per entry, 'key dtype dim,dim,..' ('-' for a scalar)."""
    with open(path, "w") as f:
        for k, v in state_dict.items():
            f.write("%s %s %s\n" % (k, str(v.dtype).split(".")[1], ",".join(map(str, v.shape)) or "-"))
