"""D-FINE-N in training form: HGNetv2-B0, hybrid encoder on strides 16 and 32, three-layer decoder.

What must hold: parameter and buffer names are the official checkpoint's, so a state dict loads strictly either way, and
in evaluation mode logits and boxes equal the official model's (check_official.py). Written from the architecture's
description (D-FINE, Peng et al. 2024; RT-DETR, Zhao et al. 2023); shapes are [B,C,H,W] maps and [B,T,C] tokens.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, QUERIES, LAYERS, BINS = 128, 8, 300, 3, 33
POINTS = (6, 6)
UP, SCALE = 0.5, 4


# ---- backbone ------------------------------------------------------------------------------------------------------
class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.scale * x + self.bias


class Unit(nn.Module):
    """Convolution, batch norm, and with act: ReLU and a scalar affine map."""

    def __init__(self, cin, cout, k, stride=1, groups=1, act=True, pad=None):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k, stride, (k - 1) // 2 if pad is None else pad, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.act = act
        if act:
            self.lab = Affine()

    def forward(self, x):
        x = self.bn(self.conv(x))
        return self.lab(F.relu(x)) if self.act else x


class Light(nn.Module):
    def __init__(self, cin, mid):
        super().__init__()
        self.conv1 = Unit(cin, mid, 1, act=False)
        self.conv2 = Unit(mid, mid, 5, groups=mid)

    def forward(self, x):
        return self.conv2(self.conv1(x))


class Block(nn.Module):
    def __init__(self, cin, mid, cout, light, residual):
        super().__init__()
        make = (lambda c: Light(c, mid)) if light else (lambda c: Unit(c, mid, 3))
        self.layers = nn.ModuleList([make(cin), make(mid), make(mid)])
        self.aggregation = nn.Sequential(Unit(cin + 3 * mid, cout // 2, 1), Unit(cout // 2, cout, 1))
        self.residual = residual

    def forward(self, x):
        maps = [x]
        for layer in self.layers:
            maps.append(layer(maps[-1]))
        y = self.aggregation(torch.cat(maps, 1))
        return y + x if self.residual else y


class Stage(nn.Module):
    def __init__(self, cin, mid, cout, blocks, light, down):
        super().__init__()
        if down:
            self.downsample = Unit(cin, cin, 3, 2, groups=cin, act=False)
        self.down = down
        self.blocks = nn.Sequential(*[Block(cin if i == 0 else cout, mid, cout, light, i > 0) for i in range(blocks)])

    def forward(self, x):
        return self.blocks(self.downsample(x) if self.down else x)


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem1 = Unit(3, 16, 3, 2)
        self.stem2a = Unit(16, 8, 2, pad=0)
        self.stem2b = Unit(8, 16, 2, pad=0)
        self.stem3 = Unit(32, 16, 3, 2)
        self.stem4 = Unit(16, 16, 1)

    def forward(self, x):
        p = F.pad(self.stem1(x), (0, 1, 0, 1))
        q = self.stem2b(F.pad(self.stem2a(p), (0, 1, 0, 1)))
        return self.stem4(self.stem3(torch.cat((F.max_pool2d(p, 2, 1), q), 1)))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Stem()
        self.stages = nn.ModuleList([Stage(16, 16, 64, 1, False, False), Stage(64, 32, 256, 1, False, True),
                                     Stage(256, 64, 512, 2, True, True), Stage(512, 128, 1024, 1, True, True)])

    def forward(self, x):
        x = self.stages[1](self.stages[0](self.stem(x)))
        s16 = self.stages[2](x)
        return [s16, self.stages[3](s16)]


# ---- hybrid encoder ------------------------------------------------------------------------------------------------
class ConvNorm(nn.Module):
    def __init__(self, cin, cout, k=1, stride=1, groups=1, act=False):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k, stride, (k - 1) // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(cout)
        self.act = act

    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.silu(x) if self.act else x


class Bottleneck(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = ConvNorm(c, c, 3), ConvNorm(c, c, 1)

    def forward(self, x):
        return F.silu(self.conv1(x) + self.conv2(x))


class Csp(nn.Module):
    def __init__(self, cin, c, depth):
        super().__init__()
        self.conv1, self.conv2 = ConvNorm(cin, c, act=True), ConvNorm(cin, c, act=True)
        self.bottlenecks = nn.Sequential(*[Bottleneck(c) for _ in range(depth)])

    def forward(self, x):
        return self.bottlenecks(self.conv1(x)) + self.conv2(x)


class Elan(nn.Module):
    def __init__(self, c=WIDTH, inner=21, depth=2):
        super().__init__()
        self.cv1 = ConvNorm(2 * c, 2 * c, act=True)
        self.cv2 = nn.Sequential(Csp(c, inner, depth), ConvNorm(inner, inner, 3, act=True))
        self.cv3 = nn.Sequential(Csp(inner, inner, depth), ConvNorm(inner, inner, 3, act=True))
        self.cv4 = ConvNorm(2 * c + 2 * inner, c, act=True)

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.append(self.cv2(y[-1]))
        y.append(self.cv3(y[-1]))
        return self.cv4(torch.cat(y, 1))


class Down(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = ConvNorm(c, c), ConvNorm(c, c, 3, 2, groups=c)

    def forward(self, x):
        return self.cv2(self.cv1(x))


class EncoderLayer(nn.Module):
    def __init__(self, c=WIDTH, hidden=512):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(c, HEADS, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(c, hidden), nn.Linear(hidden, c)
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)

    def forward(self, t, pos):
        q = t + pos
        t = self.norm1(t + self.self_attn(q, q, t, need_weights=False)[0])
        return self.norm2(t + self.linear2(F.gelu(self.linear1(t))))


def position_table(h, w, c, device):
    quarter = c // 4
    freq = 10000.0 ** (-torch.arange(quarter, device=device, dtype=torch.float32) / quarter)
    r = torch.arange(h * w, device=device)
    a, b = torch.div(r, h, rounding_mode="floor").float()[:, None] * freq, (r % h).float()[:, None] * freq
    return torch.cat((a.sin(), a.cos(), b.sin(), b.cos()), 1)[None]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer()])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_proj = nn.ModuleList([ConvNorm(512, WIDTH), ConvNorm(1024, WIDTH)])
        self.encoder = nn.ModuleList([Layers()])
        self.lateral_convs = nn.ModuleList([ConvNorm(WIDTH, WIDTH)])
        self.fpn_blocks = nn.ModuleList([Elan()])
        self.downsample_convs = nn.ModuleList([nn.Sequential(Down(WIDTH))])
        self.pan_blocks = nn.ModuleList([Elan()])

    def forward(self, maps):
        fine, coarse = [proj(m) for proj, m in zip(self.input_proj, maps)]
        b, c, h, w = coarse.shape
        t = self.encoder[0].layers[0](coarse.flatten(2).transpose(1, 2), position_table(h, w, c, coarse.device))
        coarse = t.transpose(1, 2).reshape(b, c, h, w).to(fine.dtype)
        top = self.lateral_convs[0](coarse)
        low = self.fpn_blocks[0](torch.cat((F.interpolate(top, scale_factor=2.0, mode="nearest"), fine), 1))
        return [low, self.pan_blocks[0](torch.cat((self.downsample_convs[0](low), top), 1))]


# ---- decoder -------------------------------------------------------------------------------------------------------
class Mlp(nn.Module):
    def __init__(self, cin, mid, cout, depth):
        super().__init__()
        dims = [cin] + [mid] * (depth - 1) + [cout]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Deformable(nn.Module):
    def __init__(self, c=WIDTH):
        super().__init__()
        total = sum(POINTS)
        self.sampling_offsets = nn.Linear(c, HEADS * total * 2)
        self.attention_weights = nn.Linear(c, HEADS * total)
        self.register_buffer("num_points_scale", torch.tensor([1.0 / n for n in POINTS for _ in range(n)]))

    def forward(self, q, ref, values, shapes):
        """q [B,Q,C]; ref [B,Q,4]; values: per level [B*HEADS, C/HEADS, H, W]."""
        b, n, c = q.shape
        total = sum(POINTS)
        off = wide(self.sampling_offsets(q).view(b, n, HEADS, total, 2))
        wgt = wide(self.attention_weights(q).view(b, n, HEADS, total)).softmax(-1)
        loc = ref[:, :, None, None, :2] + off * self.num_points_scale[:, None] * ref[:, :, None, None, 2:] * 0.5
        grid = (loc * 2 - 1).permute(0, 2, 1, 3, 4).reshape(b * HEADS, n, total, 2)
        parts = []
        start = 0
        for v, k in zip(values, POINTS):
            parts.append(F.grid_sample(v, grid[:, :, start:start + k].to(v.dtype), mode="bilinear", padding_mode="zeros",
                                       align_corners=False))
            start += k
        s = torch.cat(parts, -1)                                        # [B*HEADS, C/HEADS, Q, total]
        w = wgt.permute(0, 2, 1, 3).reshape(b * HEADS, 1, n, total)
        out = (s * w).sum(-1).view(b, HEADS, c // HEADS, n)
        return out.permute(0, 3, 1, 2).reshape(b, n, c)


class Gate(nn.Module):
    def __init__(self, c=WIDTH):
        super().__init__()
        self.gate, self.norm = nn.Linear(2 * c, 2 * c), nn.LayerNorm(c)

    def forward(self, x, y):
        a, b = torch.sigmoid(self.gate(torch.cat((x, y), -1))).chunk(2, -1)
        return self.norm(a * x + b * y)


class DecoderLayer(nn.Module):
    def __init__(self, c=WIDTH, hidden=512):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(c, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(c)
        self.cross_attn = Deformable(c)
        self.gateway = Gate(c)
        self.linear1, self.linear2 = nn.Linear(c, hidden), nn.Linear(hidden, c)
        self.norm3 = nn.LayerNorm(c)

    def forward(self, x, pos, ref, values, shapes, mask):
        q = x + pos
        x = self.norm1(x + self.self_attn(q, q, x, attn_mask=mask, need_weights=False)[0])
        x = self.gateway(x, self.cross_attn(x + pos, ref, values, shapes).to(x.dtype))
        return self.norm3((x + self.linear2(F.relu(self.linear1(x)))).clamp(-65504, 65504))


class Quality(nn.Module):
    def __init__(self):
        super().__init__()
        self.reg_conf = Mlp(20, 64, 1, 2)

    def forward(self, corners):
        b, q, _ = corners.shape
        top = corners.view(b, q, 4, BINS).softmax(-1).topk(4, -1)[0]
        return self.reg_conf(torch.cat((top, top.mean(-1, keepdim=True)), -1).view(b, q, 20))


class LayerStack(nn.Module):
    def __init__(self, up, reg_scale):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(LAYERS)])
        self.lqe_layers = nn.ModuleList([Quality() for _ in range(LAYERS)])
        self.up, self.reg_scale = up, reg_scale


def bin_values(device):
    """Offsets of the 33 bins, in units of box side / reg_scale."""
    a = UP * SCALE
    t = (a + 1) ** (1 / 15)
    left = [-2 * a] + [1 - t ** (16 - k) for k in range(1, 16)]
    return torch.tensor(left + [0.0] + [-v for v in reversed(left)], device=device, dtype=torch.float32)


def wide(x):
    """At least float32, whatever autocast made of it."""
    return x if x.dtype == torch.float64 else x.float()


def inverse_sigmoid(x):
    x = x.clamp(0, 1)
    return torch.log(x.clamp(min=1e-5) / (1 - x).clamp(min=1e-5))


def distance_to_box(ref, d):
    """Boxes (centre form) from the fixed reference and four side offsets."""
    cx, cy, w, h = ref.unbind(-1)
    s = float(SCALE)
    x1, y1 = cx - (s / 2 + d[..., 0]) * w / s, cy - (s / 2 + d[..., 1]) * h / s
    x2, y2 = cx + (s / 2 + d[..., 2]) * w / s, cy + (s / 2 + d[..., 3]) * h / s
    return torch.stack(((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1), -1)


def anchors_for(shapes, device):
    out = []
    for lvl, (h, w) in enumerate(shapes):
        y, x = torch.meshgrid(torch.arange(h, device=device), torch.arange(w, device=device), indexing="ij")
        side = torch.full_like(x, 0.05 * 2 ** lvl, dtype=torch.float32)
        out.append(torch.stack(((x + 0.5) / w, (y + 0.5) / h, side, side), -1).reshape(1, h * w, 4))
    a = torch.cat(out, 1)
    valid = ((a > 0.01) & (a < 0.99)).all(-1, keepdim=True)
    return torch.where(valid, torch.log(a / (1 - a)), torch.inf), valid


class Norm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj, self.norm = nn.Linear(c, c), nn.LayerNorm(c)

    def forward(self, x):
        return self.norm(self.proj(x))


class Decoder(nn.Module):
    def __init__(self, classes, size):
        super().__init__()
        c = WIDTH
        self.classes = classes
        self.up = nn.Parameter(torch.tensor([UP]), requires_grad=False)
        self.reg_scale = nn.Parameter(torch.tensor([SCALE]), requires_grad=False)
        self.decoder = LayerStack(self.up, self.reg_scale)
        self.denoising_class_embed = nn.Embedding(classes + 1, c, padding_idx=classes)
        self.query_pos_head = Mlp(4, 2 * c, c, 2)
        self.enc_output = Norm(c)
        self.enc_score_head = nn.Linear(c, classes)
        self.enc_bbox_head = Mlp(c, c, 4, 3)
        self.dec_score_head = nn.ModuleList([nn.Linear(c, classes) for _ in range(LAYERS)])
        self.pre_bbox_head = Mlp(c, c, 4, 3)
        self.dec_bbox_head = nn.ModuleList([Mlp(c, c, 4 * BINS, 3) for _ in range(LAYERS)])
        a, v = anchors_for([(size // 16, size // 16), (size // 32, size // 32)], "cpu")
        self.register_buffer("anchors", a)
        self.register_buffer("valid_mask", v)
        self.reset()

    def reset(self):
        bias = -math.log((1 - 0.01) / 0.01)
        for head in [self.enc_score_head, *self.dec_score_head]:
            nn.init.constant_(head.bias, bias)
        for head in [self.enc_bbox_head, self.pre_bbox_head, *self.dec_bbox_head]:
            nn.init.zeros_(head.layers[-1].weight)
            nn.init.zeros_(head.layers[-1].bias)
        for q in self.decoder.lqe_layers:
            nn.init.zeros_(q.reg_conf.layers[-1].weight)
            nn.init.zeros_(q.reg_conf.layers[-1].bias)
        nn.init.xavier_uniform_(self.enc_output.proj.weight)
        for mlp in (self.query_pos_head,):
            for layer in mlp.layers:
                nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(self.denoising_class_embed.weight[:-1])
        for layer in self.decoder.layers:
            att = layer.cross_attn
            nn.init.zeros_(att.sampling_offsets.weight)
            ang = torch.arange(HEADS) * (2 * math.pi / HEADS)
            ray = torch.stack((ang.cos(), ang.sin()), -1)
            ray = ray / ray.abs().amax(-1, keepdim=True)
            steps = torch.cat([torch.arange(1, n + 1) for n in POINTS]).float()
            att.sampling_offsets.bias.data.copy_((ray[:, None] * steps[None, :, None]).flatten())
            nn.init.zeros_(att.attention_weights.weight)
            nn.init.zeros_(att.attention_weights.bias)
            nn.init.zeros_(layer.gateway.gate.bias)
            nn.init.zeros_(layer.gateway.gate.weight)

    def forward(self, maps, extra=None):
        """extra (training): (tokens [B,N,C], reference logits [B,N,4], mask [N+Q,N+Q] bool, True = hidden).

        Returns a dict: layers = list of (logits, boxes, corners, reference), enc = (logits, boxes), pre = boxes."""
        shapes = [m.shape[-2:] for m in maps]
        memory = torch.cat([m.flatten(2).transpose(1, 2) for m in maps], 1)
        b, total, c = memory.shape
        if total == self.anchors.shape[1]:
            anchors, valid = self.anchors, self.valid_mask
        else:
            anchors, valid = anchors_for(shapes, memory.device)
        e = self.enc_output(memory * valid)
        score = wide(self.enc_score_head(e))
        idx = score.max(-1)[0].topk(QUERIES, 1)[1]
        pick = idx[..., None]
        target = e.gather(1, pick.expand(-1, -1, c))
        enc_logits = score.gather(1, pick.expand(-1, -1, self.classes))
        u = wide(self.enc_bbox_head(target)) + anchors.expand(b, -1, -1).gather(1, pick.expand(-1, -1, 4))
        enc = (enc_logits, u.sigmoid())
        mask = None
        x, u = (target.detach(), u.detach()) if self.training else (target, u)
        if extra is not None:
            x, u, mask = torch.cat((extra[0].to(x.dtype), x), 1), torch.cat((extra[1], u), 1), extra[2]
        values = []
        start = 0
        for h, w in shapes:
            m = memory[:, start:start + h * w].transpose(1, 2).reshape(b * HEADS, c // HEADS, h, w)
            values.append(m.contiguous())
            start += h * w
        ref = u.sigmoid()
        bins = bin_values(memory.device)
        out, pre, first = [], None, None
        corners, prev = 0, 0
        for i, layer in enumerate(self.decoder.layers):
            pos = self.query_pos_head(ref).clamp(-10, 10)
            x = layer(x, pos, ref, values, shapes, mask)
            if i == 0:
                pre = (wide(self.pre_bbox_head(x)) + inverse_sigmoid(ref)).sigmoid()
                first = pre.detach()
            corners = wide(self.dec_bbox_head[i](x + prev)) + corners
            prob = corners.view(*corners.shape[:2], 4, BINS).softmax(-1)
            boxes = distance_to_box(first, (prob * bins).sum(-1))
            if self.training or i == LAYERS - 1:
                logits = wide(self.dec_score_head[i](x)) + wide(self.decoder.lqe_layers[i](corners))
                out.append((logits, boxes, corners, first))
            ref = boxes.detach() if self.training else boxes
            prev = x.detach() if self.training else x
            corners = corners.detach() if self.training else corners
        return {"layers": out, "enc": enc, "pre": pre}


class DFine(nn.Module):
    def __init__(self, classes=3, size=640):
        super().__init__()
        self.backbone, self.encoder, self.decoder = Backbone(), Encoder(), Decoder(classes, size)

    def forward(self, images, extra=None):
        return self.decoder(self.encoder(self.backbone(images)), extra)


def detections(out, keep=300):
    """Scores, labels, boxes (x1 y1 x2 y2 in 0..1), best first."""
    logits, boxes = out["layers"][-1][:2]
    _, q, nc = logits.shape
    s, i = logits.sigmoid().flatten(1).topk(min(keep, q * nc), 1)
    box = boxes.gather(1, (i // nc)[..., None].expand(-1, -1, 4))
    half = box[..., 2:] / 2
    return s, i % nc, torch.cat((box[..., :2] - half, box[..., :2] + half), -1)
