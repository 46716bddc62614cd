"""Draw the files that a row crosses: ``python -m docs.draw_journey`` writes the picture anew.

The files come from a traced run, see ``benchmarks/journey/run.py``. Each part of the way is a
column, with the files that no earlier part crosses, by room, in the order of the way.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from textwrap import wrap

from benchmarks.journey.run import crossed
from benchmarks.journey.tracing import Journey
from docs.timelines.svg import STYLE, Drawing

PLACE = Path(__file__).parent / "journey.svg"
TITLE = "The files that a row crosses, from a Parquet file to a Parquet file"
PARTS = {
    "planning": "the driver plans the epoch",
    "reading": "tasks read files into packets",
    "level": "shards run the keyed step",
    "sink": "tasks write, the driver commits",
}

COLUMN = 300
GAP = 26
MARGIN = 20
LINE = 17
PADDING = 9
LETTERS = 38
"""Characters that fit into a line of a box."""
HEADLINE = MARGIN + 2 * LINE + 12

_STYLE = f"""{STYLE}
.room {{ fill: #ddf4ff; stroke: #0550ae; }}
.name {{ font-weight: 600; }}
.head {{ fill: #59636e; stroke: #59636e; }}"""


def rooms(files: list[str]) -> dict[str, list[str]]:
    """Return the names of the files of each room, both in the order of the way."""
    found: dict[str, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        found.setdefault(str(path.parent), []).append(path.stem)
    return found


def files_of(journey: Journey) -> dict[str, list[str]]:
    """Return the files of each part of the way, in order."""
    return {part: list(dict.fromkeys(one.file for one in journey[part])) for part in PARTS}


def draw(files: dict[str, list[str]]) -> str:
    """Return the picture as the content of a file."""
    drawing, crossed_before = Drawing(TITLE, description(files), _STYLE), set[str]()
    bottoms = []
    for number, part in enumerate(PARTS):
        new = [file for file in files[part] if file not in crossed_before]
        title = f"{part}: {len(files[part])} files" + (f", {len(new)} new" if number else "")
        drawing.text(x := MARGIN + number * (COLUMN + GAP), MARGIN + LINE / 2, title, "name")
        drawing.text(x, MARGIN + LINE * 1.5, PARTS[part], "dim")
        bottoms.append(draw_boxes(drawing, x, new))
        crossed_before.update(new)
    for number in range(1, len(PARTS)):
        x, y = MARGIN + number * (COLUMN + GAP) - GAP / 2, MARGIN + LINE
        drawing.path([(x + 8, y), (x - 6, y - 6), (x - 6, y + 6), (x + 8, y)], "head")
    return drawing.svg(2 * MARGIN + len(PARTS) * (COLUMN + GAP) - GAP, max(bottoms) + MARGIN)


def draw_boxes(drawing: Drawing, x: float, files: list[str]) -> float:
    """Draw the rooms of files below each other, and return the bottom edge."""
    y = float(HEADLINE)
    for room, names in rooms(files).items():
        lines = wrap(", ".join(names), LETTERS)
        height = 2 * PADDING + LINE * (1 + len(lines))
        drawing.rect(x, y, COLUMN, height, "room")
        drawing.text(x + PADDING, y + PADDING + LINE / 2, room, "name")
        for number, line in enumerate(lines, 1):
            drawing.text(x + PADDING, y + PADDING + LINE * (number + 0.5), line)
        y += height + 8
    return y


def description(files: dict[str, list[str]]) -> str:
    """Return the way in words."""
    return ". ".join(f"{PARTS[part]}: {', '.join(files[part])}" for part in PARTS) + "."


if __name__ == "__main__":
    PLACE.write_text(draw(files_of(crossed())), encoding="utf-8")
