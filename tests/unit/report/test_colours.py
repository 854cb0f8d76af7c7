"""Everybody can tell the colours of lines apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit.report.pictures
from tacit.report.pictures import COLOURS

CSS = (Path(tacit.report.pictures.__file__).parent / "page.css").read_text(encoding="utf-8")
# Machado, Oliveira, Fernandes: A physiologically-based model for simulation of color vision
# deficiency, 2009.
VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def palettes() -> dict[str, tuple[str, list[str]]]:
    """The page's colours by theme, each with its paper."""
    themes = {}
    for block in re.findall(r"\{[^{}]*--c7:[^{}]*\}", CSS):
        colours = re.findall(r"--c\d: (#\w{6})", block)
        paper = re.search(r"--paper: (#\w+)", block)
        assert paper
        themes[" ".join(colours)] = (paper[1], colours)
    return themes


def linear(colour: str) -> Any:
    """The light of a colour such as #123456 or #fff: red, green and blue, each from 0 to 1."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    c = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ TO_XYZ[1])


def lab(light: Any) -> Any:
    xyz = TO_XYZ @ np.clip(light, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_no_two_colours_look_alike(vision: str) -> None:
    assert len(palettes()) == 2  # light, which is also the printed one, and dark
    for _, colours in palettes().values():
        perceived = [lab(np.array(VISION[vision]) @ linear(colour)) for colour in colours]
        pairs = itertools.combinations(perceived, 2)
        assert min(np.linalg.norm(a - b) for a, b in pairs) > 20


def test_every_colour_stands_out_from_its_paper() -> None:
    for paper, colours in palettes().values():
        for colour in colours:
            darker, lighter = sorted([luminance(colour), luminance(paper)])
            assert (lighter + 0.05) / (darker + 0.05) >= 3


def test_files_and_page_use_the_same_colours() -> None:
    assert " ".join(COLOURS) in palettes()
