"""The colours of charts differ for people who see fewer of them, in both themes."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from recordmill.beam_jobs.report import page as render_page

CSS = Path(render_page.__file__).with_name("page.css").read_text()
SERIES = 8
# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SIGHTS = {
    "all colours": "1 0 0  0 1 0  0 0 1",
    "protanopia": "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216 "
    "-0.003882 -0.048116 1.051998",
    "deuteranopia": "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413 "
    "-0.011820 0.042940 0.968881",
    "tritanopia": "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602 "
    "0.004733 0.691367 0.303900",
}


def matrix(numbers: str) -> np.ndarray:
    return np.reshape(list(map(float, numbers.split())), (3, 3))


XYZ = matrix(
    "0.4124564 0.3575761 0.1804375  0.2126729 0.7151522 0.0721750 "
    "0.0193339 0.1191920 0.9503041"
)
LEAST_DIFFERENCE = 10  # CIE76; 2.3 is just noticeable
LEAST_CONTRAST = 3  # WCAG 2.2, AA, of what is not text


def themes() -> dict[str, dict[str, np.ndarray]]:
    """The variables of each theme, as linear RGB."""
    dark = CSS.split("{% macro dark() %}")[1].split("{% endmacro %}")[0]
    light = CSS.split(":root {")[1].split("}")[0]
    return {
        name: {
            variable: linear(colour)
            for variable, colour in re.findall(r"--(\w+): (#\w+);", text)
        }
        for name, text in (("dark", dark), ("light", light))
    }


def linear(colour: str) -> np.ndarray:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    values = np.array(list(bytes.fromhex(digits))) / 255
    return np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(XYZ @ np.clip(rgb, 0, 1) / (XYZ @ np.ones(3)))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_can_be_told_apart(theme: str, sight: str) -> None:
    colours = themes()[theme]
    seen = [lab(matrix(SIGHTS[sight]) @ colours[f"c{n}"]) for n in range(SERIES)]
    near = {
        pair: round(difference, 1)
        for pair in combinations(range(SERIES), 2)
        if (difference := float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])))
        < LEAST_DIFFERENCE
    }
    assert near == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_stand_out_from_the_page(theme: str) -> None:
    colours = themes()[theme]
    luminance = {name: float(XYZ[1] @ rgb) for name, rgb in colours.items()}
    for number in range(SERIES):
        low, high = sorted((luminance[f"c{number}"], luminance["card"]))
        assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST, number
