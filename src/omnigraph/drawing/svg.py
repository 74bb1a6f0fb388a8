"""The words of SVG: elements, texts that cannot break out of it, widths of texts, colours in light and dark."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import sha256
from html import escape
from typing import Any

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LIGHT = ("#2f6fb5", "#b5542f", "#2f8a4f", "#7a4fb0", "#a8791a", "#b03a75", "#1f8a8a", "#5b6b2f", "#8a5a3c", "#4a5a78")
"""Lines and frames on white; the hue is one type's, here and in `DARK`."""
DARK = ("#7fb3ea", "#f0a07e", "#7fd39c", "#bfa0ec", "#e6bf66", "#ee90bd", "#74d0d0", "#b4c67a", "#d3a98c", "#a3b4d6")
PALE = ("#e4eef9", "#fae9e1", "#e2f3e8", "#eee6f8", "#f8efd8", "#f9e4ee", "#dff2f2", "#edf1df", "#f3e8e1", "#e7ebf3")
DEEP = ("#1d3047", "#452a1e", "#1c3a28", "#33274a", "#40341a", "#44243a", "#173838", "#2c331a", "#3a2a20", "#27303f")
"""What frames are filled with, on white and on black."""

_NARROW = frozenset("iIjlftr.,:;|!'`()[]{} -")
_WIDE = frozenset("mwMWGOQ@%—…")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""What XML does not take, and what would turn the direction of the text around it."""


def text_of(value: Any, length: int = 200) -> str:
    """A value as one line of text that stays within its place: not too long, nothing that XML or readers trip over.

    >>> text_of("a\\n b\\x00", 10), text_of("abcdefgh", 5)
    ('a b\ufffd', 'abcd…')
    """
    line = " ".join(_UNWRITABLE.sub("\ufffd", str(value)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """About how wide a text is in a sans-serif font."""
    return size * sum(map(_share, text)) * (1.1 if bold else 1.0)


def _share(character: str) -> float:
    if character in _NARROW:
        return 0.34
    if character in _WIDE or (not character.isascii() and unicodedata.east_asian_width(character) in "WF"):
        return 1.0 if not character.isascii() else 0.9
    if unicodedata.combining(character):
        return 0.0
    return 0.69 if character.isupper() else 0.57


def element(name: str, attributes: Mapping[str, Any], *inner: str) -> str:
    """One element; `inner` is markup already."""
    written = "".join(f' {key}="{escape(_number(value))}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{written}>{''.join(inner)}</{name}>" if inner else f"<{name}{written}/>"


def _number(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def label(text: str, x: float, y: float, css: str, anchor: str = "middle") -> str:
    """A text, whose middle line is at `y`."""
    place = {"x": x, "y": y, "class": css or None, "text-anchor": anchor, "dominant-baseline": "central"}
    return element("text", place, escape(text, quote=False))


def told(lines: Iterable[str]) -> str:
    """What is shown while the pointer rests on the element around it."""
    return element("title", {}, escape("\n".join(lines), quote=False))


def document(width: float, height: float, body: Iterable[str], about: str) -> str:
    """A whole picture. Its rules are its own: several pictures on one page do not meet."""
    drawn = "".join(body)
    scope = f"og-{sha256(drawn.encode()).hexdigest()[:10]}"
    frame = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": scope,
        "role": "img",
        "aria-label": text_of(about),
        "viewBox": f"0 0 {width:.0f} {height:.0f}",
        "width": f"{width:.0f}",
        "height": f"{height:.0f}",
        "style": "max-width:100%;height:auto",
    }
    ground = element("rect", {"class": "ground", "width": f"{width:.0f}", "height": f"{height:.0f}", "rx": 8})
    return element("svg", frame, f"<style>{_rules(scope)}</style>", ground, drawn)


def tint(place: int) -> str:
    """The class of the colour of a type, and of a broken outline once the colours are used up."""
    return f"c{place % len(LIGHT)}" + (" again" if place // len(LIGHT) % 2 else "")


def _rules(scope: str) -> str:
    def rules(ink: str, quiet: str, ground: str, rim: str, lines: tuple[str, ...], fills: tuple[str, ...]) -> str:
        found = [
            f".{scope} text{{fill:{ink}}}",
            f".{scope} .quiet{{fill:{quiet}}}",
            f".{scope} .ground{{fill:{ground};stroke:{rim}}}",
            f".{scope} .halo{{stroke:{ground}}}",
        ]
        for place, (line, fill) in enumerate(zip(lines, fills, strict=True)):
            found.append(f".{scope} .box.c{place}{{fill:{fill};stroke:{line}}}")
            found.append(f".{scope} .line.c{place}{{stroke:{line}}}")
            found.append(f".{scope} .tip.c{place}{{fill:{line};stroke:{line}}}")
            found.append(f".{scope} text.c{place}{{fill:{line}}}")
        return "".join(found)

    shape = (
        f".{scope}{{font-family:{FONT};font-size:12px}}"
        f".{scope} .box{{stroke-width:1.4}}.{scope} .box.start{{stroke-width:3}}.{scope} .start{{font-weight:600}}"
        f".{scope} .again{{stroke-dasharray:4 3}}.{scope} .line{{fill:none;stroke-width:1.3}}"
        f".{scope} .halo{{fill:none;stroke-width:4;stroke-linejoin:round;paint-order:stroke}}"
        f".{scope} .small{{font-size:10.5px}}.{scope} .row{{font-size:11px}}"
        f".{scope} .head{{font-weight:600;font-size:13px}}"
    )
    light = rules("#1c2128", "#59636e", "#ffffff", "#d5dae0", LIGHT, PALE)
    dark = rules("#e8ebef", "#9aa4b0", "#16191d", "#343a42", DARK, DEEP)
    return f"{shape}{light}@media (prefers-color-scheme:dark){{{dark}}}"
