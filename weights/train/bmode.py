"""Procedural B-mode ultrasound frames with exact boxes and masks, batched, on any torch device.

What must hold: every frame is a function of the generator state alone; a mask is the geometry that was drawn, limited to
what can be seen (not shadowed, inside the field of view, brighter or darker than its surroundings), and a box is the
tight pixel box of its mask.

Model. Echoes are simulated on a beam grid (depth samples x scan lines) and then scan converted, as a scanner does:
complex Gaussian scatterers x local reflectivity, convolved with a point spread function whose lateral width grows away
from the focus; a few such looks are compounded incoherently; specular structures (bone, needle, fascia) add energy;
absorption is accumulated along each line (shadow below bone, enhancement below vessels); time gain, log compression.
Lengths are in units of the scene depth: z in [0, 1] downwards, x sideways with 0 in the middle.
"""
import math
import torch
import torch.nn.functional as F

NAMES = ["bone", "needle", "vessel"]
SLOTS = 4                     # instances per frame at most: bone, bone or vessel, needle, vessel
LIMB = 20                     # polyline points per bone limb


class Draw:
    """Per-frame random parameters as [B,1,1] tensors."""

    def __init__(self, batch, device, gen):
        self.n, self.dev, self.gen = batch, device, gen

    def u(self, lo, hi, *shape):
        shape = shape or (1, 1)
        return torch.rand(self.n, *shape, device=self.dev, generator=self.gen) * (hi - lo) + lo

    def flag(self, p):
        """p: probability, a number or [B,1,1]."""
        return (self.u(0, 1) < p)

    def normal(self, *shape):
        return torch.randn(self.n, *shape, device=self.dev, generator=self.gen)


def lookup(img, u, v, mode="bilinear"):
    """img [B,C,h,w] at u (columns), v (rows) in [0,1], shape [B,H,W] -> [B,C,H,W]; zero outside."""
    grid = torch.stack((u * 2 - 1, v * 2 - 1), -1)
    return F.grid_sample(img, grid, mode=mode, padding_mode="zeros", align_corners=False)


def noise(d, x, z, cells_x, cells_z, angle=None):
    """Smooth zero-mean unit noise over the scene, [B,H,W]; cells_*: [B,1,1] or number, features per unit length."""
    if angle is not None:
        c, s = torch.cos(angle), torch.sin(angle)
        x, z = c * x + s * z, c * z - s * x
    n = 64
    table = d.normal(1, n, n)
    u = torch.remainder(x * cells_x / n + 0.37, 1.0)
    v = torch.remainder(z * cells_z / n + 0.21, 1.0)
    u = (u * n).clamp(0.0, n - 1e-3)
    v = (v * n).clamp(0.0, n - 1e-3)
    # smoothstep inside each cell hides the lattice of plain bilinear interpolation
    fu, fv = u.floor(), v.floor()
    tu, tv = u - fu, v - fv
    u = fu + tu * tu * (3 - 2 * tu)
    v = fv + tv * tv * (3 - 2 * tv)
    return lookup(table, (u + 0.5) / n, (v + 0.5) / n)[:, 0] * 1.4


def blur_rows(maps, sigma, radius, axis):
    """Gaussian filter of [B,K,h,w] along axis (2 rows, 3 columns), one sigma per frame ([B]), unit energy."""
    b, k, h, w = maps.shape
    t = torch.arange(-radius, radius + 1, device=maps.device, dtype=maps.dtype)
    kern = torch.exp(-0.5 * (t[None] / sigma[:, None]) ** 2)
    kern = kern / kern.square().sum(1, keepdim=True).sqrt()
    shape = (b, 1, 1, 2 * radius + 1, 1) if axis == 2 else (b, 1, 1, 1, 2 * radius + 1)
    kern = kern.view(shape).expand(b, k, *shape[2:]).reshape(b * k, *shape[2:])
    pad = (radius, 0) if axis == 2 else (0, radius)
    return F.conv2d(maps.reshape(1, b * k, h, w), kern, padding=pad, groups=b * k).view(b, k, h, w)


def smooth_mean(img, sigma, radius=3):
    """Mean-preserving separable Gaussian of [B,h,w], one sigma per frame ([B])."""
    b = len(img)
    t = torch.arange(-radius, radius + 1, device=img.device, dtype=img.dtype)
    kern = torch.exp(-0.5 * (t[None] / sigma[:, None]) ** 2)
    kern = kern / kern.sum(1, keepdim=True)
    x = F.pad(img[None], (radius, radius, radius, radius), mode="replicate")
    x = F.conv2d(x, kern.view(b, 1, 1, -1), groups=b)
    return F.conv2d(x, kern.view(b, 1, -1, 1), groups=b)[0]


def polyline_field(x, z, pts, half, amp):
    """Nearest segment of a polyline: distance / half width, and the segment's amplitude.

    x, z [B,H,W]; pts [B,P,2]; half, amp [B,P-1]. Returns q, a, both [B,H,W]."""
    best = torch.full_like(x, 1e3)
    val = torch.zeros_like(x)
    for i in range(pts.shape[1] - 1):
        ax, az = pts[:, i, 0, None, None], pts[:, i, 1, None, None]
        dx, dz = pts[:, i + 1, 0, None, None] - ax, pts[:, i + 1, 1, None, None] - az
        px, pz = x - ax, z - az
        t = ((px * dx + pz * dz) / (dx * dx + dz * dz + 1e-9)).clamp(0, 1)
        ex, ez = px - t * dx, pz - t * dz
        q = (ex * ex + ez * ez).sqrt() / half[:, i, None, None]
        near = q < best
        best = torch.where(near, q, best)
        val = torch.where(near, amp[:, i, None, None], val)
    return best, val


class Generator:
    """Frames of one size. frames(B) -> dict of tensors on the device (see frames)."""

    def __init__(self, device, seed, height=640, width=640, square_pixels=False, compile_fields=False):
        """square_pixels: the frame is a native one; else its aspect ratio is random, as after a stretch to a square."""
        self.dev = torch.device(device)
        self.gen = torch.Generator(device=self.dev)
        self.gen.manual_seed(seed)
        self.h, self.w, self.square = height, width, square_pixels
        self.nd, self.nb = 448, 320                    # beam grid: depth samples x scan lines
        self.polyline = torch.compile(polyline_field, dynamic=False) if compile_fields else polyline_field

    # ---- geometry -------------------------------------------------------------------------------------------------
    def geometry(self, d, real):
        """Field of view: linear or curved array, placed in the frame."""
        g = {}
        aspect = torch.full_like(real, self.w / self.h, dtype=torch.float32) if self.square else torch.where(
            real, d.u(0.7, 0.85), torch.exp(d.u(math.log(0.62), math.log(1.7))))
        curved = d.flag(0.4) & ~real
        g["aspect"], g["curved"] = aspect, curved
        full = real | d.flag(0.35)
        # linear: the field's width over its depth; full frames are cropped to the field exactly
        g["fov"] = torch.where(full, aspect, aspect * d.u(0.55, 1.0))
        g["r0"] = d.u(0.08, 0.8)
        g["tmax"] = d.u(0.35, 0.75)
        sag = g["r0"] * (1 - torch.cos(g["tmax"]))
        wide = 2 * (g["r0"] + 1) * torch.sin(g["tmax"])
        fit = torch.minimum(1 / (1 + sag), aspect / wide)
        g["scale"] = torch.where(curved, fit * d.u(0.85, 1.25), torch.where(full, d.u(1.0, 1.06), d.u(0.75, 1.05)))
        g["ox"] = torch.where(full & ~curved, torch.zeros_like(aspect), d.u(-0.06, 0.06))
        slack = (1 - g["scale"]).clamp(min=0)
        g["oz"] = torch.where(curved, sag * g["scale"] * d.u(0.3, 1.0), torch.where(full, d.u(-0.02, 0.0), slack * d.u(0, 1)))
        g["wide"] = torch.where(curved, (g["r0"] + 0.5) * torch.sin(g["tmax"]) * 1.6, torch.minimum(g["fov"], aspect / g["scale"]))
        g["flip"] = d.flag(0.5)
        return g

    def image_coords(self, g, h, w):
        """Scene coordinates of pixel centres, [B,h,w] each."""
        z = (torch.arange(h, device=self.dev) + 0.5) / h
        x = (torch.arange(w, device=self.dev) + 0.5) / w - 0.5
        z, x = z[None, :, None].expand(1, h, w), x[None, None].expand(1, h, w)
        return (x * g["aspect"] - g["ox"]) / g["scale"], (z - g["oz"]) / g["scale"]

    def to_beam(self, g, x, z):
        """Scene -> (line, depth), both in [0,1] inside the field."""
        theta = torch.atan2(x, z + g["r0"])
        r = (x * x + (z + g["r0"]) ** 2).sqrt()
        line = torch.where(g["curved"], 0.5 + theta / (2 * g["tmax"]), 0.5 + x / g["fov"])
        return line, torch.where(g["curved"], r - g["r0"], z)

    def beam_coords(self, g):
        dep = ((torch.arange(self.nd, device=self.dev) + 0.5) / self.nd)[None, :, None]
        lin = ((torch.arange(self.nb, device=self.dev) + 0.5) / self.nb)[None, None]
        th, r = (2 * lin - 1) * g["tmax"], g["r0"] + dep
        x = torch.where(g["curved"], r * torch.sin(th), (lin - 0.5) * g["fov"])
        z = torch.where(g["curved"], r * torch.cos(th) - g["r0"], dep.expand(1, self.nd, self.nb))
        return x, z, lin.expand_as(x), dep.expand_as(x)

    def to_image_uv(self, g, x, z):
        """Scene -> frame coordinates in [0,1]."""
        return (x * g["scale"] + g["ox"]) / g["aspect"] + 0.5, z * g["scale"] + g["oz"]

    # ---- objects --------------------------------------------------------------------------------------------------
    def bone_curve(self, d, g, real, second):
        """A surface as two limbs that leave an apex: headings turn from phi0 to phi1 along each limb."""
        kind = d.u(0, 1)
        vee = real & (kind < 0.85) | (kind < 0.45)
        flat = ~vee & (kind < 0.8 + 0.1 * real)
        x0 = torch.where(real & ~torch.tensor(second, device=self.dev), d.u(-0.12, 0.42), d.u(-0.42, 0.42)) * g["wide"]
        z0 = torch.where(vee, torch.where(real, d.u(0.05, 0.27), d.u(0.08, 0.45)), d.u(0.12, 0.6))
        roundness = d.u(0, 1)
        sharp = roundness < 0.4
        pts, half, amp = [], [], []
        thick = torch.where(real, d.u(0.0065, 0.0125), d.u(0.006, 0.016))[:, 0]
        s = torch.linspace(0, 1, LIMB, device=self.dev)[None]
        fall_all = d.u(0, 1)[:, 0]
        for side in (-1, 1):
            phi0 = torch.where(vee, torch.where(sharp, d.u(0.3, 0.9), d.u(0.0, 0.3)), d.u(-0.25, 0.3))[:, 0]
            phi1 = torch.where(vee, d.u(0.75, 1.54), torch.where(flat, d.u(-0.35, 0.5), d.u(0.3, 1.3)))[:, 0]
            phi1 = torch.maximum(phi1, torch.where(vee[:, 0], phi0, phi1))
            bend = d.u(0.12, 0.9)[:, 0]
            length = torch.where(vee, d.u(0.16, 0.62), d.u(0.1, 0.55))[:, 0]
            single = (d.u(0, 1)[:, 0] < 0.1)
            length = torch.where(single & (side > 0), length * 0.15, length)
            turn = (s / bend).clamp(0, 1)
            phi = phi0 + (phi1 - phi0) * (turn * turn * (3 - 2 * turn))
            wob = F.interpolate(d.normal(1, 6), size=LIMB, mode="linear", align_corners=True)[:, 0]
            phi = phi + wob * d.u(0.0, 0.16)[:, 0] * torch.sin(math.pi * s.clamp(0, 1)).clamp(min=0.3)
            step = length / (LIMB - 1)
            dx, dz = torch.cos(phi) * step * side, torch.sin(phi) * step
            lx = torch.cumsum(dx, 1) - dx
            lz = torch.cumsum(dz, 1) - dz
            # echo strength falls along the limb, since steep surfaces reflect away from the probe
            drop = torch.where(vee, d.u(0, 21), d.u(0, 14))[:, 0] * s ** 1.5
            rough = F.interpolate(d.normal(1, 10), size=LIMB, mode="linear", align_corners=True)[:, 0] * d.u(0.3, 2.5)[:, 0]
            a = -drop + rough
            t = thick * (1.25 - 0.45 * s) * (1 + 0.5 * fall_all * torch.exp(-s * 8)) * \
                (1 + 0.15 * F.interpolate(d.normal(1, 7), size=LIMB, mode="linear", align_corners=True)[:, 0].clamp(-2, 2))
            pts.append(torch.stack((lx + x0[:, 0], lz + z0[:, 0]), -1))
            half.append(t)
            amp.append(a)
        p = torch.cat((pts[0].flip(1), pts[1][:, 1:]), 1)
        h = torch.cat((half[0].flip(1), half[1][:, 1:]), 1)
        a = torch.cat((amp[0].flip(1), amp[1][:, 1:]), 1)
        return p, (h[:, 1:] + h[:, :-1]) / 2, (a[:, 1:] + a[:, :-1]) / 2

    def needle_params(self, d, g):
        ang = d.u(0.15, 1.1) * torch.where(d.flag(0.5), 1.0, -1.0)
        tipx, tipz = d.u(-0.35, 0.35) * g["wide"], d.u(0.18, 0.75)
        length = d.u(0.2, 0.8)
        return {"tx": tipx, "tz": tipz, "c": -torch.cos(ang), "s": -torch.sin(ang.abs()) , "sx": torch.sign(ang),
                "len": length, "half": d.u(0.006, 0.0095), "amp": d.u(4, 16), "rev": d.u(0.012, 0.035), "nrev": d.u(0, 0.75),
                "lobe": d.u(0.0, 0.3)}

    @staticmethod
    def needle_field(n, x, z):
        """Along (0 at the tip, len at the hub) and signed across distance."""
        ux, uz = n["c"] * n["sx"], n["s"]
        px, pz = x - n["tx"], z - n["tz"]
        return px * ux + pz * uz, px * uz - pz * ux

    def vessel_params(self, d, g):
        r = torch.exp(d.u(math.log(0.034), math.log(0.13)))
        return {"x": d.u(-0.42, 0.42) * g["wide"], "z": d.u(0.12, 0.72), "a": r * d.u(1.0, 1.9), "b": r * d.u(0.65, 1.0),
                "rot": d.u(-0.6, 0.6), "w2": d.u(-0.1, 0.1), "w3": d.u(-0.07, 0.07), "p2": d.u(0, 6.3), "p3": d.u(0, 6.3),
                "dark": d.u(26, 45), "rim": d.u(-2, 10), "post": d.u(0, 9)}

    @staticmethod
    def vessel_field(v, x, z):
        """Normalised radius: < 1 inside."""
        c, s = torch.cos(v["rot"]), torch.sin(v["rot"])
        px, pz = (x - v["x"]), (z - v["z"])
        a, b = (c * px + s * pz) / v["a"], (c * pz - s * px) / v["b"]
        rho = (a * a + b * b).sqrt()
        th = torch.atan2(b, a)
        return rho / (1 + v["w2"] * torch.cos(2 * th + v["p2"]) + v["w3"] * torch.cos(3 * th + v["p3"]))

    # ---- echoes ---------------------------------------------------------------------------------------------------
    def tissue_db(self, d, x, z, real):
        """Reflectivity of the background in dB, on the beam grid."""
        wav = d.u(0.0, 0.03) * torch.sin(x * d.u(2, 7) + d.u(0, 6.3)) + d.u(-0.15, 0.15) * x + \
            0.006 * noise(d, x, z, 8.0, 4.0)
        zz = z + wav
        n = 192
        steps = F.interpolate(d.normal(1, 14), size=n, mode="nearest")[:, 0] * d.u(1, 6)[:, 0]
        pos = (torch.arange(n, device=self.dev) / n)[None]
        # fascia: thin bright layers, most of them near the skin
        lines = torch.zeros_like(steps)
        for _ in range(6):
            c = d.u(0, 1)[:, 0] ** 2 * torch.where(real, 0.3, 0.7)[:, 0] + 0.01
            amp = d.u(-4, 24)[:, 0].clamp(min=0)
            lines = torch.maximum(lines, amp * torch.exp(-0.5 * ((pos - c) / d.u(0.002, 0.009)[:, 0]) ** 2))
        skin = d.u(0, 20)[:, 0] * torch.exp(-pos / d.u(0.02, 0.1)[:, 0])
        table = (steps + lines + skin)[:, None, :, None]
        broken = (1 + 0.5 * noise(d, x, z, 5.0, 3.0)).clamp(0, 1.3)
        db = lookup(table, torch.full_like(zz, 0.5), zz.clamp(0, 1))[:, 0] * torch.where(zz < 0.12, torch.ones_like(broken), broken)
        ang = d.u(-0.35, 0.35)
        db = db + noise(d, x, z, d.u(3, 7), d.u(3, 9)) * d.u(1, 6)
        stria = noise(d, x, z, d.u(4, 14), d.u(40, 95), ang)
        db = db + stria * d.u(0, 6)
        streak = noise(d, x, z, d.u(6, 16), d.u(25, 60), ang)
        db = db + (streak - 1.1).clamp(min=0) * d.u(0, 16)
        # septa: level lines of smooth noise are thin closed curves
        wx, wz = x + 0.03 * noise(d, x, z, 12.0, 12.0), z + 0.02 * noise(d, x, z, 12.0, 12.0)
        lvl = noise(d, wx, wz, d.u(6, 16), d.u(8, 24), ang)
        gate = torch.sigmoid(noise(d, x, z, 5.0, 5.0) * 3 - d.u(-2, 2))
        db = db + d.u(4, 20) * torch.exp(-(lvl / d.u(0.08, 0.25)) ** 2) * gate * (d.flag(0.75) | real)
        # dark muscle between septa: soft edges, no wall, so no vessel
        pocket = torch.sigmoid((noise(d, x, z, d.u(5, 11), d.u(6, 14), ang) - d.u(0.2, 1.0)) * d.u(3, 10))
        db = db - d.u(5, 28) * pocket * d.flag(torch.where(real, 0.7, 0.15))
        return db - torch.where(real, d.u(8, 20), d.u(0, 14)) * torch.sigmoid((z - 0.1) * 40)

    def speckle(self, d, db, line, dep):
        """Compounded envelope of scatterers with the reflectivity db; mean energy follows 10^(db/10)."""
        amp = torch.pow(10.0, db / 20)
        looks = 3
        field = d.normal(2 * looks, self.nd, self.nb) * amp[:, None]
        field = blur_rows(field, d.u(0.8, 1.7)[:, 0, 0], 4, 2)
        narrow = blur_rows(field, d.u(0.8, 1.8)[:, 0, 0], 5, 3)
        wide = blur_rows(field, d.u(2.0, 4.5)[:, 0, 0], 11, 3)
        off = ((dep - d.u(0.15, 0.7)).abs() * d.u(0.8, 2.5)).clamp(0, 1)
        f = narrow + (wide - narrow) * off[:, None]
        e = (f[:, :looks] ** 2 + f[:, looks:] ** 2) / 2
        w = torch.softmax(d.u(0, 3, looks, 1, 1), 1)
        return (e * w).sum(1)

    def frames(self, batch):
        """One batch.

        image [B,3,H,W] float in 0..1 (multiples of 1/255); masks [B,4,H,W] bool; boxes [B,4,4] x1 y1 x2 y2 in pixels (edges);
        labels [B,4] long (index into NAMES); valid [B,4] bool."""
        with torch.no_grad():
            return self._frames(batch)

    def _frames(self, batch):
        d = Draw(batch, self.dev, self.gen)
        real = d.flag(0.45)
        g = self.geometry(d, real)
        ix, iz = self.image_coords(g, self.h, self.w)
        bx, bz, line, dep = self.beam_coords(g)
        bx, bz = bx.expand(batch, -1, -1), bz.expand(batch, -1, -1)
        line, dep = line.expand(batch, -1, -1), dep.expand(batch, -1, -1)
        u, v = self.to_image_uv(g, bx, bz)
        cx, cz = self.image_coords(g, (self.h + 1) // 2, (self.w + 1) // 2)
        il, idp = self.to_beam(g, ix, iz)
        fov = (il > 0) & (il < 1) & (idp > 0) & (idp < 1)

        has_bone = d.flag(torch.where(real, 0.93, 0.5))
        bone2 = d.flag(0.14)
        vessel2 = ~bone2 & d.flag(torch.where(real, 0.06, 0.28))
        has_needle = d.flag(torch.where(real, 0.22, 0.45))
        has_vessel = d.flag(torch.where(real, 0.10, 0.55))

        # bones: fields are evaluated on a half-size frame grid, where they are smooth, and read back bilinearly
        bones, apex = [], []
        for k, on in ((0, has_bone), (1, bone2)):
            p, half, amp = self.bone_curve(d, g, real, k == 1)
            q, a = self.polyline(cx.contiguous(), cz.contiguous(), p, half, amp)
            q = torch.where(on, q, torch.full_like(q, 1e3))
            qa = torch.stack((q.clamp(max=60), a), 1)
            qi = F.interpolate(qa[:, :1], size=(self.h, self.w), mode="bilinear", align_corners=False)[:, 0]
            uvc_u, uvc_v = u.clamp(0.001, 0.999), v.clamp(0.001, 0.999)
            qb = lookup(qa, uvc_u, uvc_v)
            out = (u < -0.02) | (u > 1.02) | (v < -0.02) | (v > 1.02)
            apex.append((p[:, LIMB - 1, 0, None, None], p[:, LIMB - 1, 1, None, None]))
            bones.append((torch.where(out, torch.full_like(u, 60.0), qb[:, 0]), qb[:, 1], qi, on))
        nd = self.needle_params(d, g)
        ves = [self.vessel_params(d, g), self.vessel_params(d, g)]
        ves_on = [has_vessel, vessel2]

        # reflectivity
        db = self.tissue_db(d, bx, bz, real)
        # soft tissue that is bright above a bone, and layers that run along it
        near = ((bx - apex[0][0]) / d.u(0.05, 0.3)) ** 2 + ((bz - apex[0][1] + d.u(0.0, 0.08)) / d.u(0.03, 0.1)) ** 2
        db = db + d.u(0, 22) * d.flag(0.5) * torch.exp(-near) * has_bone
        for _ in range(2):
            along = torch.exp(-0.5 * ((bones[0][0] - d.u(3.0, 12.0)) / d.u(0.5, 1.2)) ** 2) * (0.5 + 0.5 * noise(d, bx, bz, 6.0, 6.0)).clamp(0, 1)
            db = db + along * d.u(0, 22) * d.flag(torch.where(real, 0.4, 0.15))
        enh = torch.zeros_like(db)
        for p, on in zip(ves, ves_on):
            rho = self.vessel_field(p, bx, bz)
            thin = torch.minimum(p["a"], p["b"])
            inside = torch.sigmoid((1 - rho) * thin / 0.003) * on
            rim = torch.exp(-0.5 * ((rho - 1.04) * thin / 0.005) ** 2) * on
            db = db * (1 - inside) - inside * (p["dark"]) + rim * p["rim"].clamp(min=0)
            path = torch.cumsum(inside, 1) / self.nd
            enh = enh + p["post"] * (path / (2 * thin)).clamp(0, 1) * (1 - inside)
        energy = self.speckle(d, db + enh, line, dep)

        # absorption along the lines
        through = torch.ones_like(db)
        shade = []
        for qb, ab, _, on in bones:
            dens = torch.exp(-0.5 * qb ** 2) * on
            tot = torch.cumsum(dens, 1)
            shift = 6
            tot = F.pad(tot, (0, 0, shift, 0))[:, :-shift]
            t = torch.exp(-tot * d.u(0.25, 1.2))
            shade.append(t)
            through = through * t
        left = torch.where(g["flip"], 1 - line, line)
        lost = d.flag(torch.where(real, 0.75, 0.25))
        edge = d.u(0.02, 0.32) + 0.02 * noise(d, bx * 0, bz, 1.0, 16.0) + d.u(-0.05, 0.08) * dep
        contact = torch.where(lost, torch.sigmoid((left - edge) / d.u(0.004, 0.03)), torch.ones_like(left))
        other = d.flag(0.2)
        contact = contact * torch.where(other, torch.sigmoid((d.u(0.7, 0.98) - left) / d.u(0.004, 0.03)), torch.ones_like(left))
        # narrow shadows from the skin line (air, hair)
        drop = (noise(d, line, dep * 0, d.u(10, 50), 1.0) - 1.3).clamp(min=0) * d.u(0, 3) * d.flag(0.35)
        contact = contact * torch.exp(-drop * 2)
        contact = contact + (1 - contact) * torch.sigmoid((d.u(0.01, 0.06) - dep) * 200)
        slope = torch.where(real, d.u(10, 55), d.u(-5, 45))
        knee = d.u(0.0, 0.6)
        gain_db = -slope * (dep - knee).clamp(min=0) - d.u(0, 12) * (dep - d.u(0.2, 0.8)).abs()
        tgc = torch.pow(10.0, gain_db / 10)
        wall = contact.pow(4).clamp(min=1e-7)
        leak = torch.pow(10.0, -d.u(20, 70) / 10)
        energy = energy * tgc * wall * (through.square() + leak)

        # specular structures
        level = torch.where(real, d.u(18, 27), d.u(15, 26))
        grain = 0.35 + 0.65 * (self.speckle(d, torch.zeros_like(db), line, dep) / 1.0).clamp(0.05, 3.0)
        soft = d.u(0.0, 0.9)
        for k, (qb, ab, _, on) in enumerate(bones):
            others = shade[1 - k]
            halo = d.u(0.15, 0.5)
            prof = torch.exp(-0.5 * (qb / 0.38) ** 2) + 0.003 * soft * torch.exp(-0.5 * (qb / (1.5 + 2 * halo)) ** 2)
            spec = prof * torch.pow(10.0, (level + ab - 0.25 * slope * (dep - knee).clamp(min=0)) / 10) * on
            echo = spec * grain * wall * (5e-4 + others.square())
            energy = energy + echo
            # reverberation: the surface again at twice its depth
            twice = lookup(echo[:, None], line, dep / 2)[:, 0]
            energy = energy + twice * torch.pow(10.0, -d.u(25, 45) / 10) * d.flag(0.22)
        along, across = self.needle_field(nd, bx, bz)
        body = torch.sigmoid(along / 0.003) * torch.sigmoid((nd["len"] - along) / 0.003) * has_needle
        nspec = torch.exp(-0.5 * (across / (0.40 * nd["half"])) ** 2)
        for i in range(1, 4):
            off = (self.below(nd, across) - i * nd["rev"]) / (0.5 * nd["half"])
            nspec = nspec + torch.pow(nd["nrev"] * 0.5, float(2 * i)) * torch.exp(-0.5 * off * off)
        tip = torch.exp(-0.5 * ((bz - nd["tz"]) / 0.004) ** 2 - ((bx - nd["tx"]).abs() / 0.05)) * nd["lobe"] * has_needle
        beat = 0.6 + 0.4 * torch.sin(along * d.u(20, 200) + d.u(0, 6)) * d.flag(0.4)
        nlev = torch.pow(10.0, (nd["amp"] + 8 - 0.1 * slope * (dep - knee).clamp(min=0)) / 10)
        energy = energy + (nspec * body * beat + 0.1 * tip) * nlev * grain * wall * (through.square())
        # near-field ringing that is there even without contact
        ring = lookup(d.normal(1, 96, 1).abs() * torch.exp(-torch.arange(96, device=self.dev)[None, None, :, None] / torch.where(d.flag(0.8), d.u(1.5, 6), d.u(6, 14))[:, None]),
                      torch.full_like(line, 0.5), (dep + 0.002 * noise(d, bx, bz, 6.0, 3.0)).clamp(0, 1))[:, 0]
        ring = ring * torch.exp(-0.5 * (dep / d.u(0.015, 0.07)) ** 2)
        energy = energy + ring * torch.pow(10.0, d.u(-10, 22) / 10) * (0.4 + 0.6 * grain) * torch.where(real, 1.0, 0.6)
        energy = energy + torch.pow(10.0, -d.u(22, 60) / 10) * (0.3 + 0.7 * grain) * torch.pow(10.0, d.u(-10, 12) * dep / 10)

        # log compression, scan conversion
        span = d.u(38, 66)
        top = torch.where(real, d.u(10, 20), d.u(8, 24))
        gray = ((10 * torch.log10(energy + 1e-12) - top) / span + 1).clamp(0, 1.15)
        img = lookup(gray[:, None], il, idp)[:, 0] * fov
        see = lookup(torch.stack([contact] + shade + [through], 1), il, idp)
        img = self.finish(d, img, real)

        masks, beside = [], []
        labels = torch.zeros(batch, SLOTS, dtype=torch.long, device=self.dev)
        for k, (_, _, qi, on) in enumerate(bones):
            seen = on & fov & (see[:, 0] > 0.3) & (see[:, 2 - k] > 0.5)
            masks.append((qi < 1) & seen)
            beside.append((qi > 2.0) & (qi < 4.0) & seen)
        al, ac = self.needle_field(nd, ix, iz)
        seen = (al > 0) & (al < nd["len"]) & has_needle & fov & (see[:, 0] > 0.3) & (see[:, 3] > 0.5)
        needle = (ac.abs() < nd["half"]) & seen
        # above the line only: below it lies the reverberation
        beside.append((self.below(nd, ac) < -2.0 * nd["half"]) & (self.below(nd, ac) > -5.0 * nd["half"]) & seen)
        vm = []
        for p, on in zip(ves, ves_on):
            rho = self.vessel_field(p, ix, iz)
            seen = fov & (see[:, 3] > 0.4) & (see[:, 0] > 0.3) & on
            vm.append((rho < 1) & seen)
            beside.append((rho > 1.1) & (rho < 1.6) & seen)
        masks = [masks[0], torch.where(vessel2, vm[1], masks[1]), needle, vm[0]]
        labels[:, 1] = torch.where(vessel2[:, 0, 0], 2, 0)
        labels[:, 2], labels[:, 3] = 1, 2
        beside = [beside[0], torch.where(vessel2, beside[4], beside[1]), beside[2], beside[3]]
        return self.collect(img, masks, labels, beside)

    @staticmethod
    def below(n, across):
        """Signed distance that grows downwards from the needle's line."""
        return torch.where(n["sx"] * n["c"] > 0, across, -across) * -1.0

    def collect(self, img, masks, labels, beside):
        """Drops what cannot be told from its surroundings (beside: a band next to each mask), finds boxes."""
        gray = img[:, 0]
        unit = self.h * self.w / 409600                     # thresholds are in pixels of a 640 x 640 frame
        m, r = torch.stack(masks, 1), torch.stack(beside, 1)
        area, around = m.sum((2, 3)).float(), r.sum((2, 3)).float()
        mean = (m * gray[:, None]).sum((2, 3)) / area.clamp(min=1)
        ring = (r * gray[:, None]).sum((2, 3)) / around.clamp(min=1)
        bright = (mean > 0.25) & (mean - ring > 0.1)
        dark = (ring - mean > 0.06) & (mean < 0.8 * ring) & (around > 0.6 * area) & (area > 300 * unit)
        valid = area > 60 * unit
        ok = torch.where(labels == 2, dark, bright)
        valid = valid & ok
        m = m & valid[:, :, None, None]
        rows, cols = m.any(3), m.any(2)
        big = 1 << 20
        ys, xs = torch.arange(self.h, device=self.dev), torch.arange(self.w, device=self.dev)
        y1 = torch.where(rows, ys, big).amin(2)
        y2 = torch.where(rows, ys + 1, 0).amax(2)
        x1 = torch.where(cols, xs, big).amin(2)
        x2 = torch.where(cols, xs + 1, 0).amax(2)
        boxes = torch.stack((x1, y1, x2, y2), -1).float() * valid[..., None]
        valid = valid & (boxes[..., 2] - boxes[..., 0] > 3) & (boxes[..., 3] - boxes[..., 1] > 3)
        return {"image": img, "masks": m & valid[:, :, None, None], "boxes": boxes * valid[..., None], "labels": labels, "valid": valid}

    def finish(self, d, img, real):
        """Scanner post-processing, overlays and what recording adds."""
        gam = torch.where(real, d.u(0.9, 2.0), d.u(0.7, 1.7))
        img = img.clamp(0, 1.15).pow(gam)
        soft = smooth_mean(img, torch.where(d.flag(0.6), d.u(0.3, 1.1), d.u(0.1, 0.3))[:, 0, 0] * self.h / 640)
        sharp = img + (img - soft) * d.u(-1.0, 0.8)
        img = (sharp * d.u(0.8, 1.3) + d.u(-0.06, 0.03)).clamp(0, 1)
        h, w = self.h, self.w
        yy = ((torch.arange(h, device=self.dev) + 0.5) / h)[None, :, None]
        xx = ((torch.arange(w, device=self.dev) + 0.5) / w)[None, None]
        over = torch.zeros_like(img)
        # text: rows of random 5x7 glyphs
        for _ in range(3):
            on = d.flag(torch.where(real, 0.08, 0.4))
            cw, n = d.u(0.008, 0.016), 24
            bits = (d.u(0, 1, 1, 8, 6 * n) < 0.45).float()
            bits[:, :, 7] = 0
            bits[..., 5::6] = 0
            chars = d.u(3, n)
            tu = (xx - d.u(0, 0.85)) / (cw * n)
            tv = (yy - torch.where(d.flag(0.5), d.u(0, 0.1), d.u(0.85, 0.97))) / (cw * 1.6)
            t = lookup(bits, tu.expand_as(img), tv.expand_as(img), "nearest")[:, 0] * (tu < chars / n) * on
            over = torch.maximum(over, t * d.u(0.5, 1.0))
        # depth ticks at one side and a mark at the bottom
        sidex = torch.where(d.flag(0.5), d.u(0.0, 0.04), d.u(0.95, 0.995))
        per = d.u(0.04, 0.12)
        tick = ((xx - sidex).abs() < d.u(0.003, 0.01)) & (torch.remainder(yy, per) < 0.0035) & d.flag(torch.where(real, 0.08, 0.35))
        mark = ((xx - torch.where(real, d.u(0.55, 0.65), d.u(0.1, 0.9))).abs() < 0.0028) & (yy > 1 - d.u(0.006, 0.02)) & d.flag(torch.where(real, 0.8, 0.15))
        bar = ((xx - (1 - sidex)).abs() < 0.008) & (yy > 0.2) & (yy < 0.6) & d.flag(torch.where(real, 0.02, 0.15))
        over = torch.maximum(over, (tick | mark) * d.u(0.6, 1.0))
        over = torch.maximum(over, bar * (0.62 - yy) * 2.2)
        frame = d.flag(0.1) & ((xx < 0.004) | (xx > 0.996) | (yy < 0.004) | (yy > 0.996))
        img = torch.where(over > 0, over, torch.maximum(img, frame * 0.6))
        img = img + d.normal(h, w) * torch.where(d.flag(0.3), d.u(0, 0.03), torch.zeros_like(gam))
        img = img.clamp(0, 1)[:, None].expand(-1, 3, -1, -1)
        tint = torch.where(d.flag(0.12)[..., None], d.u(0.75, 1.0, 3, 1, 1), torch.ones(1, 1, 1, 1, device=self.dev))
        return (img * tint * 255).round() / 255
