"""Writing SVG: text that reads the same wherever it is drawn, and differs only where it must."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# An opaque card, so that the page behind may be light or dark. Each colour has at least 4.5:1 on
# white; late values also differ in shape, for who does not see the colour.
STYLE = f"""
text {{ font-family: {FONT}; font-size: 13px; fill: #1f2328; }}
.code, .dim, .watermark-name {{ paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }}
.code {{ font-family: {MONO}; font-size: 12px; }}
.dim {{ fill: #59636e; font-size: 12px; }}
.card {{ fill: #ffffff; stroke: #d1d9e0; }}
.grid {{ stroke: #d1d9e0; stroke-width: 1; }}
.window {{ fill: #b6dcfe; }}
.end {{ stroke: #0550ae; stroke-width: 3; }}
.value {{ fill: #0550ae; }}
.letter {{ fill: #ffffff; font-weight: 600; text-anchor: middle; }}
.late {{ fill: #ffffff; stroke: #cf222e; stroke-width: 2; }}
.late-letter {{ fill: #cf222e; font-weight: 600; text-anchor: middle; }}
.watermark {{ fill: none; stroke: #9a6700; stroke-width: 2.5; }}
.held {{ stroke-dasharray: 6 4; }}
.watermark-name {{ fill: #7d5200; font-size: 12px; }}
.down {{ fill: #eaeef2; }}
""".strip()


class Drawing:
    """Shapes and text, in the order in which they are added.

    Args:
        title: what the picture shows, in a few words.
        description: what there is to see, for who does not see it.
        style: the style sheet of the classes of shapes.
    """

    def __init__(self, title: str, description: str, style: str = STYLE) -> None:
        self._title = title
        self._style = style
        self._description = description
        self._parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Add a rectangle."""
        self._add("rect", kind, x=x, y=y, width=width, height=height)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Add a line."""
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Add a line through several points."""
        through = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polyline class="{kind}" points="{through}"/>')

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        """Add a circle."""
        self._add("circle", kind, cx=x, cy=y, r=radius)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Add text whose middle is at height `y`."""
        where = f'x="{number(x)}" y="{number(y + 4.5)}"'
        kinds = f' class="{kind}"' if kind else ""
        anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(f"<text{kinds} {where}{anchored}>{escape(text, quote=False)}</text>")

    def svg(self, width: float, height: float) -> str:
        """The picture, as a file's content."""
        size = f'width="{number(width)}" height="{number(height)}"'
        card = f'width="{number(width - 1)}" height="{number(height - 1)}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}'
            f' viewBox="0 0 {number(width)} {number(height)}">',
            f"<title>{escape(self._title, quote=False)}</title>",
            f"<desc>{escape(self._description, quote=False)}</desc>",
            f"<style>\n{self._style}\n</style>",
            f'<rect class="card" x="0.5" y="0.5" rx="6" {card}/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _add(self, name: str, kind: str, **places: float) -> None:
        attributes = " ".join(f'{key}="{number(value)}"' for key, value in places.items())
        self._parts.append(f'<{name} class="{kind}" {attributes}/>')


def number(value: float) -> str:
    """A coordinate, to a tenth, without zeros at its end.

    >>> number(12.0), number(3.14159)
    ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")
