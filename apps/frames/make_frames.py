"""Draws the frames of the demo: make_frames.py [FOLDER]     (needs numpy and Pillow)

bone-1..4.png  a B-mode sector as a curved probe shows it: speckle that fades with depth, a bright bone surface with a
               shadow below; the bone moves from frame to frame. 8-bit gray; bone-4 is 16-bit gray.
phantom.png    the synthetic image of the golden data at 480 x 640 (tests/official/synth.py), RGB.
Everything follows from fixed seeds; nothing is taken from any recording.
"""
import os
import sys

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 440, 420
APEX = (-60.0, WIDTH / 2)  # row, column where the scan lines meet
RADII, ANGLE = (80.0, 490.0), 0.5  # pixels; half of the opening angle in radians


def blur(a, along, across):
    """Separable box blur, twice: near enough to a Gaussian."""
    for axis, n in ((0, along), (1, across)):
        kernel = np.ones(n) / n
        for _ in range(2):
            a = np.apply_along_axis(lambda v: np.convolve(v, kernel, "same"), axis, a)
    return a


def scan_lines(position, rng, depths=410, lines=220):
    """Echo intensities, depth by scan line; `position` 0..1 moves the bone."""
    noise = rng.normal(size=(depths, lines)) + 1j * rng.normal(size=(depths, lines))
    speckle = np.abs(blur(noise.real, 2, 3) + 1j * blur(noise.imag, 2, 3))
    depth = np.arange(depths)[:, None] / depths
    line = np.linspace(-1, 1, lines)[None, :]
    tissue = speckle / speckle.mean() * (0.55 * np.exp(-1.6 * depth) + 0.05)
    for at, bend, gain in ((0.10, 0.02, 1.5), (0.19, -0.03, 1.1), (0.27, 0.015, 0.8)):  # fascia
        tissue = tissue + gain * 0.25 * np.exp(-(((depth - at - bend * line ** 2) / 0.008) ** 2)) * (0.6 + 0.4 * speckle)
    centre = -0.25 + 0.45 * position
    surface = 0.40 + 0.05 * position + 0.55 * (line - centre) ** 2
    extent = np.clip((0.62 - np.abs(line - centre)) / 0.08, 0, 1)
    shadow = 1 - 0.93 * extent * np.clip((depth - surface) / 0.03, 0, 1)
    bone = 1.5 * extent * np.exp(-(((depth - surface) / 0.011) ** 2)) * (0.75 + 0.25 * speckle)
    return tissue * shadow + bone


def convert(echoes):
    """Polar to image, logarithmic compression; 0..1."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    dr, dc = rows - APEX[0], columns - APEX[1]
    radius, angle = np.hypot(dr, dc), np.arctan2(dc, dr)
    d = (radius - RADII[0]) / (RADII[1] - RADII[0]) * (echoes.shape[0] - 1)
    s = (angle + ANGLE) / (2 * ANGLE) * (echoes.shape[1] - 1)
    inside = (d >= 0) & (d < echoes.shape[0] - 1) & (s >= 0) & (s < echoes.shape[1] - 1)
    d0, s0 = np.where(inside, d, 0).astype(int), np.where(inside, s, 0).astype(int)
    fd, fs = d - d0, s - s0
    value = ((1 - fd) * ((1 - fs) * echoes[d0, s0] + fs * echoes[d0, s0 + 1]) +
             fd * ((1 - fs) * echoes[d0 + 1, s0] + fs * echoes[d0 + 1, s0 + 1]))
    return np.where(inside, np.clip(np.log1p(12 * np.maximum(value, 0)) / np.log(20), 0, 1), 0)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for i in range(4):
        image = convert(scan_lines(i / 3, np.random.default_rng(100 + i)))
        # 16 bits hold the same 256 levels, so that the file stays small
        level = np.rint(image * 255).astype(np.uint16)
        picture = Image.fromarray(level * 257) if i == 3 else Image.fromarray(level.astype(np.uint8))
        picture.save(os.path.join(folder, f"bone-{i + 1}.png"), optimize=True)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/official"))
    import synth
    Image.fromarray(synth.phantom(480, 640, 1)).save(os.path.join(folder, "phantom.png"), optimize=True)


main()
