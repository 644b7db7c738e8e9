"""MobileSAM in training form: TinyViT-5M image encoder, prompt encoder and mask decoder.

What must hold: names are the official checkpoint's (439 entries, strict load either way), and with a box prompt the mask
logits and the predicted IoU equal the official model's at 1024 (check_official.py). Written from the architecture's
description (Segment Anything, Kirillov et al. 2023; TinyViT, Wu et al. 2022; MobileSAM, Zhang et al. 2023). Any input
side that is a multiple of 64 works, since every position code is normalised.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
EMBED = 256


def wide(x):
    """At least float32, whatever autocast made of it."""
    return x if x.dtype == torch.float64 else x.float()


class ConvBn(nn.Module):
    def __init__(self, cin, cout, k=1, stride=1, groups=1):
        super().__init__()
        self.c = nn.Conv2d(cin, cout, k, stride, (k - 1) // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return self.bn(self.c(x))


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(ConvBn(3, 32, 3, 2), nn.GELU(), ConvBn(32, 64, 3, 2))

    def forward(self, x):
        return self.seq(x)


class MBConv(nn.Module):
    def __init__(self, c, hidden):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = ConvBn(c, hidden), ConvBn(hidden, hidden, 3, groups=hidden), ConvBn(hidden, c)

    def forward(self, x):
        return F.gelu(x + self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x))))))


class Merge(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = ConvBn(cin, cout), ConvBn(cout, cout, 3, stride, cout), ConvBn(cout, cout)

    def forward(self, x):
        return self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x)))))


class WindowAttention(nn.Module):
    def __init__(self, c, heads, ws):
        super().__init__()
        self.heads, self.ws = heads, ws
        self.norm = nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.attention_biases = nn.Parameter(torch.zeros(heads, ws * ws))
        y, x = torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")
        y, x = y.flatten(), x.flatten()
        idx = (y[:, None] - y[None]).abs() * ws + (x[:, None] - x[None]).abs()
        self.register_buffer("index", idx, persistent=False)

    def forward(self, x):
        """x [windows, ws*ws, C]."""
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, self.heads, 3, c // self.heads).permute(3, 0, 2, 1, 4)
        bias = self.attention_biases[:, self.index][None].to(q.dtype)
        y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=bias)
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class WindowMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.LayerNorm(c)
        self.fc1, self.fc2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class WindowBlock(nn.Module):
    def __init__(self, c, heads, ws):
        super().__init__()
        self.ws = ws
        self.attn, self.mlp = WindowAttention(c, heads, ws), WindowMlp(c)
        self.local_conv = ConvBn(c, c, 3, groups=c)

    def forward(self, x):
        """x [B,H,W,C]; zero tokens fill the last windows and take part in the attention."""
        b, h, w, c = x.shape
        ws = self.ws
        ph, pw = -h % ws, -w % ws
        t = F.pad(x, (0, 0, 0, pw, 0, ph))
        nh, nw = (h + ph) // ws, (w + pw) // ws
        t = t.view(b, nh, ws, nw, ws, c).transpose(2, 3).reshape(b * nh * nw, ws * ws, c)
        t = self.attn(t).view(b, nh, nw, ws, ws, c).transpose(2, 3).reshape(b, h + ph, w + pw, c)[:, :h, :w]
        x = x + t
        x = self.local_conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.mlp(x)


class Layer(nn.Module):
    def __init__(self, blocks, down):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        if down is not None:
            self.downsample = down
        self.down = down is not None
        self.tokens = isinstance(blocks[0], WindowBlock)

    def forward(self, x):
        if self.tokens:
            x = x.permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        if self.tokens:
            x = x.permute(0, 3, 1, 2)
        return self.downsample(x) if self.down else x


class LayerNorm2d(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))

    def forward(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], self.weight, self.bias, 1e-6).permute(0, 3, 1, 2)


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        win = lambda n, c, heads, ws: [WindowBlock(c, heads, ws) for _ in range(n)]
        self.layers = nn.ModuleList([Layer([MBConv(64, 256), MBConv(64, 256)], Merge(64, 128, 2)),
                                     Layer(win(2, 128, 4, 7), Merge(128, 160, 2)),
                                     Layer(win(6, 160, 5, 14), Merge(160, 320, 1)),
                                     Layer(win(2, 320, 10, 7), None)])
        self.norm_head, self.head = nn.LayerNorm(320), nn.Linear(320, 1000)      # in the file, never used
        self.neck = nn.Sequential(nn.Conv2d(320, EMBED, 1, bias=False), LayerNorm2d(EMBED),
                                  nn.Conv2d(EMBED, EMBED, 3, padding=1, bias=False), LayerNorm2d(EMBED))

    def forward(self, x):
        x = self.patch_embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.neck(x)


class PositionCode(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(2, EMBED // 2))

    def forward(self, xy):
        """xy in [0,1]."""
        z = 2 * math.pi * ((2 * wide(xy) - 1) @ self.positional_encoding_gaussian_matrix)
        return torch.cat((z.sin(), z.cos()), -1)


class PromptEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pe_layer = PositionCode()
        self.point_embeddings = nn.ModuleList([nn.Embedding(1, EMBED) for _ in range(4)])
        self.not_a_point_embed, self.no_mask_embed = nn.Embedding(1, EMBED), nn.Embedding(1, EMBED)
        self.mask_downscaling = nn.Sequential(nn.Conv2d(1, 4, 2, 2), LayerNorm2d(4), nn.GELU(), nn.Conv2d(4, 16, 2, 2),
                                              LayerNorm2d(16), nn.GELU(), nn.Conv2d(16, EMBED, 1))

    def boxes(self, box, side):
        """box [N,4] in pixels of the padded input of that side -> tokens [N,2,256]."""
        code = self.pe_layer((box.view(-1, 2, 2) + 0.5) / side)
        return code + torch.stack((self.point_embeddings[2].weight[0], self.point_embeddings[3].weight[0]))

    def dense_code(self, n):
        """[1,n*n,256] position codes of the embedding's cells."""
        g = self.pe_layer.positional_encoding_gaussian_matrix
        c = (torch.arange(n, device=g.device, dtype=g.dtype) + 0.5) / n
        y, x = torch.meshgrid(c, c, indexing="ij")
        return self.pe_layer(torch.stack((x, y), -1)).view(1, n * n, EMBED)


class Attention(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(EMBED, inner) for _ in range(3))
        self.out_proj = nn.Linear(inner, EMBED)

    def forward(self, q, k, v):
        split = lambda t: t.unflatten(-1, (8, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q_proj(q)), split(self.k_proj(k)), split(self.v_proj(v)))
        return self.out_proj(y.transpose(1, 2).flatten(2))


class DecoderMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(EMBED, 2048), nn.Linear(2048, EMBED)

    def forward(self, x):
        return self.lin2(F.relu(self.lin1(x)))


class TwoWayLayer(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first
        self.self_attn, self.cross_attn_token_to_image = Attention(EMBED), Attention(EMBED // 2)
        self.cross_attn_image_to_token = Attention(EMBED // 2)
        self.mlp = DecoderMlp()
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(EMBED) for _ in range(4))

    def forward(self, q, k, t, pk):
        q = self.norm1(self.self_attn(q, q, q) if self.first else q + self.self_attn(q + t, q + t, q))
        q = self.norm2(q + self.cross_attn_token_to_image(q + t, k + pk, k))
        q = self.norm3(q + self.mlp(q))
        return q, self.norm4(k + self.cross_attn_image_to_token(k + pk, q + t, q))


class TwoWay(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([TwoWayLayer(True), TwoWayLayer(False)])
        self.final_attn_token_to_image = Attention(EMBED // 2)
        self.norm_final_attn = nn.LayerNorm(EMBED)

    def forward(self, t, k, pk):
        q = t
        for layer in self.layers:
            q, k = layer(q, k, t, pk)
        return self.norm_final_attn(q + self.final_attn_token_to_image(q + t, k + pk, k)), k


class Mlp3(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(EMBED, EMBED), nn.Linear(EMBED, EMBED), nn.Linear(EMBED, out)])

    def forward(self, x):
        return self.layers[2](F.relu(self.layers[1](F.relu(self.layers[0](x)))))


class MaskDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = TwoWay()
        self.iou_token, self.mask_tokens = nn.Embedding(1, EMBED), nn.Embedding(4, EMBED)
        self.output_upscaling = nn.Sequential(nn.ConvTranspose2d(EMBED, 64, 2, 2), LayerNorm2d(64), nn.GELU(),
                                              nn.ConvTranspose2d(64, 32, 2, 2), nn.GELU())
        self.output_hypernetworks_mlps = nn.ModuleList([Mlp3(32) for _ in range(4)])
        self.iou_prediction_head = Mlp3(4)

    def forward(self, keys, pk, sparse):
        """keys [N,T,256] with the dense prompt added; sparse [N,S,256] -> logits [N,4,4n,4n], iou [N,4]."""
        n, t, c = keys.shape
        side = math.isqrt(t)
        own = torch.cat((self.iou_token.weight, self.mask_tokens.weight)).expand(n, -1, -1)
        q, k = self.transformer(torch.cat((own, sparse), 1), keys, pk)
        up = self.output_upscaling(k.transpose(1, 2).reshape(n, c, side, side))
        w = torch.stack([mlp(q[:, 1 + i]) for i, mlp in enumerate(self.output_hypernetworks_mlps)], 1)
        return torch.einsum("nmc,nchw->nmhw", wide(w), wide(up)), self.iou_prediction_head(q[:, 0])


class MobileSam(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_encoder, self.prompt_encoder, self.mask_decoder = ImageEncoder(), PromptEncoder(), MaskDecoder()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False)
        self.apply(self.reset)
        nn.init.zeros_(self.prompt_encoder.no_mask_embed.weight)

    @staticmethod
    def reset(m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02 if m.in_features < 256 else m.in_features ** -0.5)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Conv2d) and m.groups == 1:
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.5)

    def normalise(self, images, side):
        """images [B,3,h,w] in 0..1, longer side = side -> padded right and below with zeros after normalisation."""
        x = (images * 255 - self.mean) / self.std
        return F.pad(x, (0, side - x.shape[-1], 0, side - x.shape[-2]))

    def forward(self, x, box, image_of):
        """x normalised [B,3,S,S]; box [N,4] in its pixels; image_of [N] rows of x. -> logits [N,4,S/4,S/4], iou [N,4]."""
        emb = self.image_encoder(x)
        n = emb.shape[-1]
        keys = (emb + self.prompt_encoder.no_mask_embed.weight.view(1, -1, 1, 1)).flatten(2).transpose(1, 2)
        sparse = self.prompt_encoder.boxes(box, x.shape[-1])
        return self.mask_decoder(keys[image_of], self.prompt_encoder.dense_code(n), sparse)
