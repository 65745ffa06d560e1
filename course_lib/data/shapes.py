"""The offline stand-in for Fashion-MNIST and CIFAR-10: ten classes of shapes and textures, drawn with NumPy.

Classes 0 to 6 are outlines (disc, ring, ...); classes 7 to 9 are textures (stripes, checks, spots) that fill
any of these outlines. Colour, size, position, rotation, background, a second object and noise are random. The hue
depends on the class, so that a linear model of colour images learns something; a high accuracy needs convolutions.

Coordinates run from -1 to 1 across the image, brightness from 0 to 1. In `_block` every random number of an
image has the shape [n, 1, 1], so that it broadcasts over the image's pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

CLASSES = ("disc", "ring", "square", "triangle", "cross", "star", "crescent", "stripes", "checks", "spots")
OUTLINES = 7  # the first seven classes differ in their outline, the others in their texture
BLOCK = 500  # images drawn at once; each block has its own random stream

Uniform = Callable[[float, float], np.ndarray]  # (low, high) -> one random number per image, [n, 1, 1]


@dataclass(frozen=True)
class Difficulty:
    """The ranges of the random factors."""

    shift: float  # largest distance of the object from the centre, along each axis
    radius: tuple[float, float]  # smallest and largest radius of the object
    turn: float  # largest rotation, in whole turns
    contrast: tuple[float, float]  # difference in brightness between object and background
    dark: float  # brightest level of the darker one, as a fraction of 1 - contrast
    inverted: float  # probability that the object is darker than its background
    texture: tuple[float, float]  # contrast of the texture
    waves: float  # largest amplitude of the waves in the background
    clutter: float  # probability of a second, smaller object
    noise: float  # largest standard deviation of the noise of a pixel
    hue: float  # largest distance of the hue from the hue of the class, in whole turns


# Tuned with benchmarks/stand_in.py, so that the learning curves resemble those of the replaced set.
LIKE_FASHION_MNIST = Difficulty(
    shift=0.15,
    radius=(0.4, 0.8),
    turn=0.06,
    contrast=(0.25, 0.8),
    dark=0.2,
    inverted=0.0,
    texture=(0.2, 0.7),
    waves=0.1,
    clutter=0.3,
    noise=0.25,
    hue=0.5,  # not used: grey images have no hue
)
LIKE_CIFAR10 = Difficulty(
    shift=0.35,
    radius=(0.33, 0.75),
    turn=0.5,
    contrast=(0.1, 0.5),
    dark=1.0,
    inverted=0.4,
    texture=(0.15, 0.6),
    waves=0.2,
    clutter=0.6,
    noise=0.25,
    hue=0.12,
)


def draw(
    count: int, image_shape: tuple[int, int, int] = (32, 32, 3), *, split: str = "train", seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the first `count` images of a split: images uint8 [count, h, w, c], labels int64 [count].

    The same seed gives the same bytes, and image i does not depend on `count`.

    Args:
        image_shape: (h, w, c); with c = 1 the images are as hard as Fashion-MNIST, with c = 3 as CIFAR-10.
        split: "train" or "test".

    Raises ValueError for another split or number of channels.
    """
    if split not in ("train", "test"):
        raise ValueError(f'The split is "train" or "test", not {split!r}.')
    if image_shape[2] not in (1, 3):
        raise ValueError(f"An image has 1 or 3 channels, not {image_shape[2]}.")
    x = np.empty((count, *image_shape), np.uint8)
    y = np.empty(count, np.int64)
    for block, start in enumerate(range(0, count, BLOCK)):
        rng = np.random.default_rng([seed, ("train", "test").index(split), block])
        images, labels = _block(rng, image_shape)
        x[start : start + BLOCK] = images[: count - start]
        y[start : start + BLOCK] = labels[: count - start]
    return x, y


def _block(rng: np.random.Generator, image_shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Draw BLOCK images and their labels, the same number of each class."""
    height, width, channels = image_shape
    level = LIKE_CIFAR10 if channels == 3 else LIKE_FASHION_MNIST
    labels = rng.permutation(np.arange(BLOCK) % len(CLASSES))
    x = (np.arange(width, dtype=np.float32) + 0.5) * 2 / width - 1
    y = (np.arange(height, dtype=np.float32)[:, None] + 0.5) * 2 / height - 1

    def uniform(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (BLOCK, 1, 1)).astype(np.float32)

    # The object, in coordinates (u, v) relative to its centre; u / radius, v / radius give an outline of radius 1.
    radius = uniform(*level.radius)
    centre = uniform(-level.shift, level.shift), uniform(-level.shift, level.shift)
    u, v = _turned(x, y, centre, uniform(-level.turn, level.turn), uniform)
    outlines = np.where(labels < OUTLINES, labels, rng.integers(OUTLINES, size=BLOCK))
    inside = _inside(outlines, u / radius, v / radius, radius * width / 2)

    # A second object near the border, behind the first. Its outline does not depend on the class.
    small, angle, away = uniform(0.15, 0.35), uniform(0, 2 * np.pi), uniform(0.7, 1.0)
    centre = away * np.cos(angle), away * np.sin(angle)
    s, t = _turned(x, y, centre, uniform(-0.5, 0.5), uniform)
    clutter = _inside(rng.integers(OUTLINES, size=BLOCK), s / small, t / small, small * width / 2)
    clutter *= uniform(0, 1) < level.clutter

    # Brightness of the three layers.
    contrast = uniform(*level.contrast)
    low = uniform(0, level.dark) * (1 - contrast)
    high = low + contrast
    inverted = uniform(0, 1) < level.inverted
    texture = _texture(labels, u, v, uniform) * uniform(*level.texture)
    back = np.where(inverted, high, low) + _waves(x, y, uniform) * uniform(0, level.waves)
    front = np.where(inverted, low + texture, high - texture)
    front += uniform(-0.15, 0.15) * x + uniform(-0.15, 0.15) * y
    second = low + contrast * uniform(0, 1)

    # Colour the layers, stack them, add noise.
    if channels == 3:
        back = _tinted(back, uniform(0, 1), uniform(0, 0.25))
        second = _tinted(second, uniform(0, 1), uniform(0, 0.35))
        own = labels[:, None, None].astype(np.float32) / len(CLASSES)
        front = _tinted(front, own + uniform(-level.hue, level.hue), uniform(0, 0.35))
    else:
        back, second, front = back[..., None], second[..., None], front[..., None]
    image = back + clutter[..., None] * (second - back)
    image += inside[..., None] * (front - image)
    image += rng.standard_normal(image.shape, np.float32) * uniform(0, level.noise)[..., None]
    return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8), labels


def _turned(
    x: np.ndarray, y: np.ndarray, centre: tuple[np.ndarray, np.ndarray], turn: np.ndarray, uniform: Uniform
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates [n, h, w] relative to `centre`, rotated by `turn` and slightly stretched along one axis."""
    dx, dy = x - centre[0], y - centre[1]
    cos, sin, stretch = np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn), uniform(0.85, 1.15)
    return (cos * dx + sin * dy) * stretch, (cos * dy - sin * dx) / stretch


def _inside(outlines: np.ndarray, u: np.ndarray, v: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """1 inside the outline, 0 outside, with a smooth edge one pixel wide; `pixels` is the radius in pixels."""
    distance = np.empty_like(u)
    for outline, formula in enumerate((_disc, _ring, _square, _triangle, _cross, _star, _crescent)):
        chosen = outlines == outline
        distance[chosen] = formula(u[chosen], v[chosen])
    return (0.5 - distance * pixels).clip(0, 1)


# Signed distances from the edge of each outline, negative inside. The radius is 1, y points down.


def _disc(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.hypot(u, v) - 1


def _ring(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.abs(np.hypot(u, v) - 0.78) - 0.22


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(u), np.abs(v)) - 0.85


def _triangle(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(v, np.sqrt(0.75) * np.abs(u) - v / 2) - 0.55


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    u, v = np.abs(u), np.abs(v)
    return np.minimum(np.maximum(u - 1, v - 0.3), np.maximum(u - 0.3, v - 1))


def _star(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Five points. By symmetry, each tenth of the plane maps to the sector from a tip to an inner corner."""
    tenth = np.pi / 5
    angle = np.abs((np.arctan2(u, -v) + tenth) % (2 * tenth) - tenth)
    along, across = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    dx, dy = 1 - 0.45 * np.cos(tenth), 0.45 * np.sin(tenth)
    return ((along - 1.05) * dy + across * dx) / np.hypot(dx, dy)


def _crescent(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(np.hypot(u, v) - 1, 0.8 - np.hypot(u - 0.45, v))


def _texture(labels: np.ndarray, u: np.ndarray, v: np.ndarray, uniform: Uniform) -> np.ndarray:
    """The texture [n, h, w]: 1 in the stripes, checks or spots of an object, 0 elsewhere."""
    frequency = 2 * np.pi / uniform(0.28, 0.5)
    a, b = np.sin(frequency * u + uniform(0, 6.3)), np.sin(frequency * v + uniform(0, 6.3))
    texture = np.zeros_like(u)
    for name, wave in ("stripes", a), ("checks", 2 * a * b), ("spots", a + b - 0.6):
        chosen = labels == CLASSES.index(name)
        texture[chosen] = (0.5 + 1.5 * wave[chosen]).clip(0, 1)
    return texture


def _waves(x: np.ndarray, y: np.ndarray, uniform: Uniform) -> np.ndarray:
    """The mean [n, h, w] of two random plane waves, between -1 and 1."""
    return sum(np.sin(uniform(-8, 8) * x + uniform(-8, 8) * y + uniform(0, 6.3)) for _ in range(2)) / 2


def _tinted(light: np.ndarray, hue: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    """RGB [n, h, w, 3] from brightness [n, h, w], hue (in whole turns) and saturation (in units of brightness)."""
    thirds = np.arange(3, dtype=np.float32) / 3
    return light[..., None] + saturation[..., None] * np.cos(2 * np.pi * (hue[..., None] - thirds))
