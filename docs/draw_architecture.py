"""Draw the picture of the architecture: ``python docs/draw_architecture.py`` writes it anew.

The rooms and their arrows come from the imports of the code. An arrow points from a room to a room
that it imports; an arrow that a longer path replaces is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from architecture.rooms import ROLES, inner_rooms, outer_graph, ranks, reduced
from timelines.svg import STYLE, Drawing

PLACE = Path(__file__).parent / "architecture.svg"
TITLE = "The rooms of the code and their imports"

NARROWEST = 760
BOX_WIDTH = 226
BOX_GAP = 20
ROW_GAP = 38
MARGIN = 20
LINE = 17
PADDING = 12
LETTERS = 31
"""Characters of code that fit into a line of a box."""

_STYLE = f"""{STYLE}
.room {{ fill: #ddf4ff; stroke: #0550ae; }}
.name {{ font-weight: 600; }}
.arrow {{ fill: none; stroke: #59636e; stroke-width: 1.5; }}
.head {{ fill: #59636e; stroke: #59636e; }}"""


@dataclass(frozen=True)
class Box:
    """The box of a room.

    Attributes:
        room: the outer room.
        x: the left edge.
        y: the top edge.
        height: the height.
        folders: the lines that list the folders in the room.
    """

    room: str
    x: float
    y: float
    height: float
    folders: tuple[str, ...]

    @property
    def middle(self) -> float:
        """The middle between the left and the right edge."""
        return self.x + BOX_WIDTH / 2

    @property
    def bottom(self) -> float:
        """The bottom edge."""
        return self.y + self.height


def rows() -> list[list[str]]:
    """Return the rooms row by row from the top: each room above all rooms that it imports."""
    found: dict[int, list[str]] = defaultdict(list)
    rank_of = ranks(outer_graph())
    for room in ROLES:
        found[rank_of[room]].append(room)
    return [found[rank] for rank in sorted(found, reverse=True)]


def row_width(rooms: list[str]) -> int:
    """Return the width of a row of boxes."""
    return len(rooms) * (BOX_WIDTH + BOX_GAP) - BOX_GAP


def picture_width() -> int:
    """Return the width of the picture, which the widest row and its margins fit into."""
    return max(NARROWEST, *(row_width(rooms) + 2 * MARGIN for rooms in rows()))


def boxes() -> Iterator[Box]:
    """Yield the boxes, row by row from the top."""
    inner = inner_rooms()
    y = float(MARGIN)
    for rooms in rows():
        folders = [tuple(wrap(", ".join(inner[room]), LETTERS)) for room in rooms]
        heights = [2 * PADDING + LINE * (1 + 1 + len(lines)) for lines in folders]
        x = (picture_width() - row_width(rooms)) / 2
        for room, lines in zip(rooms, folders, strict=True):
            yield Box(room, x, y, max(heights), lines)
            x += BOX_WIDTH + BOX_GAP
        y += max(heights) + ROW_GAP


def draw() -> str:
    """Return the picture as the content of a file."""
    drawn = {box.room: box for box in boxes()}
    arrows = sorted(reduced(outer_graph()))
    drawing = Drawing(TITLE, description(arrows), _STYLE)
    for upper, lower in arrows:
        draw_arrow(drawing, drawn[upper], drawn[lower], list(drawn.values()))
    for box in drawn.values():
        draw_box(drawing, box)
    return drawing.svg(picture_width(), max(box.bottom for box in drawn.values()) + MARGIN)


def description(arrows: list[tuple[str, str]]) -> str:
    """Return the arrows in words."""
    imported: dict[str, list[str]] = defaultdict(list)
    for upper, lower in arrows:
        imported[upper].append(lower)
    return ". ".join(f"{room} imports {', '.join(imported[room])}" for room in imported) + "."


def draw_box(drawing: Drawing, box: Box) -> None:
    """Draw a room: its name, its role and its folders."""
    drawing.rect(box.x, box.y, BOX_WIDTH, box.height, "room")
    x, y = box.x + PADDING, box.y + PADDING + LINE / 2
    drawing.text(x, y, box.room, "name")
    drawing.text(x, y + LINE, ROLES[box.room], "role")
    for number, line in enumerate(box.folders, 2):
        drawing.text(x, y + number * LINE, line, "folders")


def draw_arrow(drawing: Drawing, upper: Box, lower: Box, every: list[Box]) -> None:
    """Draw an arrow: straight down, sideways within a row, or around the rows between."""
    if upper.y == lower.y:
        draw_sideways(drawing, upper, lower)
        return
    shift = (lower.middle - upper.middle) / 12
    start, end = (upper.middle + shift, upper.bottom), (lower.middle - shift, lower.y)
    between = [box for box in every if upper.bottom < box.y < lower.y]
    if not between:
        drawing.path([start, end], "arrow")
    else:
        lane = free_lane(between, (start[0] + end[0]) / 2)
        above = min(box.y for box in between) - ROW_GAP / 2
        below = max(box.bottom for box in between) + ROW_GAP / 2
        drawing.path([start, (lane, above), (lane, below), end], "arrow")
        start = (lane, below)
    draw_head(drawing, start, end)


def draw_sideways(drawing: Drawing, left: Box, right: Box) -> None:
    """Draw an arrow on a circle of rooms, below the row; the way back is lower."""
    is_right = left.x < right.x
    depth = left.bottom + (10 if is_right else 20)
    apart = BOX_WIDTH / 4 if is_right else -BOX_WIDTH / 4
    start, end = (left.middle + apart, left.bottom), (right.middle - apart, right.bottom)
    drawing.path([start, (start[0], depth), (end[0], depth), end], "arrow")
    draw_head(drawing, (end[0], depth), end)


def free_lane(between: list[Box], wish: float) -> float:
    """Return the position next to a wish at which a vertical line crosses no box."""
    edges = [box.x - BOX_GAP / 2 for box in between]
    edges += [box.x + BOX_WIDTH + BOX_GAP / 2 for box in between]
    free = [x for x in edges if not any(box.x - 2 < x < box.x + BOX_WIDTH + 2 for box in between)]
    return min(free, key=lambda x: (abs(x - wish), x))


def draw_head(drawing: Drawing, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw the head of an arrow."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = (across**2 + down**2) ** 0.5
    across, down = 7 * across / length, 7 * down / length
    back = end[0] - across, end[1] - down
    left = back[0] - down / 2, back[1] + across / 2
    right = back[0] + down / 2, back[1] - across / 2
    drawing.path([end, left, right, end], "head")


if __name__ == "__main__":
    PLACE.write_text(draw(), encoding="utf-8")
