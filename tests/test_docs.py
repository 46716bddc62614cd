"""Documents: their pictures, links, names and signatures agree with the code.

Their examples are run by ``dev.py check``.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import flow_windowing
from flow.engine.spark.session.versions import SUPPORTED, WAY_OUT

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
WINDOWS = sorted((DOCS / "reference/windows").glob("*.md"))
PICTURES = sorted((DOCS / "timelines").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


def targets(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures, in order."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def leads_nowhere(page: Path, target: str) -> bool:
    """Return True if a link is to a file or a heading that does not exist."""
    if re.match(r"https?:", target):
        return False
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    return not file.exists() or bool(anchor and anchor not in anchors(file))


def printed_by(program: str) -> str:
    """Return what a program in the folder of the docs prints."""
    made = subprocess.run(
        [sys.executable, "-c", program],
        cwd=DOCS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_pages_and_pictures_exist() -> None:
    assert len(WINDOWS) > 10
    assert set(WINDOWS) < set(PAGES)
    assert len(PICTURES) >= 10


@pytest.mark.parametrize(
    "name", ["watermark.svg", pytest.param(None, marks=pytest.mark.extended, id="all")]
)
def test_the_committed_pictures_are_up_to_date(name: str | None) -> None:
    drawn = "d.pictures()" if name is None else "{'watermark.svg': d.watermark()}"
    redrawn = json.loads(
        printed_by(f"import json, draw_timelines as d; print(json.dumps({drawn}))")
    )
    chosen = [picture for picture in PICTURES if name in (None, picture.name)]
    committed = {picture.name: picture.read_text("utf-8") for picture in chosen}
    assert sorted(committed) == sorted(redrawn)
    different = [name for name in committed if committed[name] != redrawn[name]]
    assert different == [], "run python docs/draw_timelines.py, and look at what has changed"


def test_every_picture_is_shown_once_with_alternative_text() -> None:
    pages = "\n".join(prose(page) for page in PAGES)
    shown = re.findall(r"!\[([^\]]+)\]\([./]*timelines/([^)]+)\)", pages)
    assert sorted(name for _, name in shown) == [picture.name for picture in PICTURES]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_has_a_description_and_a_background(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.findtext(f"{SVG}title")
    assert len(root.findtext(f"{SVG}desc") or "") > 40
    card = root.find(f"{SVG}rect")
    assert card is not None
    assert card.get("class") == "card"
    assert ".card { fill: #ffffff;" in picture.read_text("utf-8")


ALL_PICTURES = [*PICTURES, DOCS / "architecture.svg", DOCS / "journey.svg"]


@pytest.mark.parametrize("picture", ALL_PICTURES, ids=lambda path: path.name)
def test_nothing_lies_outside_a_picture(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for shape in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(shape.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(shape.get(name, 0)) <= height
        if shape is not root and shape.tag == f"{SVG}rect":
            assert float(shape.get("x", 0)) + float(shape.get("width", 0)) <= width


def test_every_link_to_a_file_or_a_heading_has_a_target() -> None:
    pairs = [(page, target) for page in PAGES for target in targets(page)]
    assert [pair for pair in pairs if leads_nowhere(*pair)] == []


def test_a_broken_link_is_detected() -> None:
    page = DOCS / "reference/windows/clocks.md"
    wrong = ["missing.md", "#no-such-heading", "lateness.md#no-such-heading"]
    there = ["#eventclock", "lateness.md#the-late-stream", "../../../README.md"]
    right = [*there, "https://example.com/missing"]
    assert [target for target in wrong + right if leads_nowhere(page, target)] == wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_named_link_is_defined_and_every_definition_used(page: Path) -> None:
    text = prose(page)
    defined = re.findall(r"^\[([^\]]+)\]: \S+$", text, re.MULTILINE)
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    used |= {name for name in defined if re.search(rf"\[{re.escape(name)}\](?![\[(:])", text)}
    assert sorted(defined) == sorted(used)


def test_every_name_and_argument_of_windowing_is_explained() -> None:
    words = {word for page in WINDOWS for word in re.findall(r"\w+", page.read_text("utf-8"))}
    assert [name for name in flow_windowing.__all__ if name not in words] == []
    made = [name for name in flow_windowing.__all__ if re.search("Clock$|Windower$|^[a-z]", name)]
    assert {"EventClock", "CountWindower", "join_window"} <= set(made)
    arguments = {
        (name, argument)
        for name in made
        if not inspect.isabstract(getattr(flow_windowing, name))
        for argument in inspect.signature(getattr(flow_windowing, name)).parameters
    }
    assert {(name, argument) for name, argument in arguments if argument not in words} == set()


def test_signatures_agree_with_the_pages() -> None:
    pages = "\n".join(prose(page) for page in WINDOWS)
    signatures = re.findall(r"^`(\w+\(.*\))`$", pages, re.MULTILINE)
    assert len(signatures) == 6, "one for each windower"
    for text in signatures:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        parameters = inspect.signature(getattr(flow_windowing, call.func.id)).parameters
        given = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
        assert given + [str(keyword.arg) for keyword in call.keywords] == list(parameters), text
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Constant):
                default = parameters[str(keyword.arg)].default
                assert keyword.value.value == default, f"{keyword.arg} in {text}"


def test_pages_for_users_have_no_words_of_the_engine() -> None:
    """An epoch, a shard and a partition are for users, in the glossary; the others are not."""
    glossary = DOCS / "reference/glossary.md"
    for term in ("epoch", "shard", "partition"):
        assert f"| **{term}** |" in glossary.read_text("utf-8")
    folders = [DOCS / name for name in ("tutorial", "how_to", "reference", "coming_from")]
    pages = [path for folder in folders for path in folder.rglob("*.md") if path != glossary]
    engine = re.compile(r"\b(?:packets?|levels?|slices?)\b", re.IGNORECASE)
    of_logs = re.compile(r"`[^`]*`|log level|level of the log|at the level|no level of their own")
    found = {page: engine.findall(of_logs.sub("", prose(page))) for page in [README, *pages]}
    assert {page: words for page, words in found.items() if words} == {}


def test_the_picture_of_the_architecture_agrees_with_the_imports() -> None:
    drawn = printed_by("import draw_architecture as d; print(d.draw(), end='')")
    committed = (DOCS / "architecture.svg").read_text("utf-8")
    assert committed == drawn, "run python docs/draw_architecture.py"


def test_the_page_of_the_architecture_names_existing_rooms_modules_and_functions() -> None:
    page = (DOCS / "explanation/architecture.md").read_text("utf-8")
    picture = (DOCS / "architecture.svg").read_text("utf-8")
    rooms = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    names = [name for cell in rooms for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) > 10
    assert [name for name in names if f">{name}<" not in picture] == []
    paths = re.findall(r"`((?:flow|flow_windowing|recovery|tests|docs)/[\w/.]*)`", page)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [README, DOCS / "reference/spark.md"], ids=lambda path: path.name)
def test_the_tables_of_spark_versions_agree_with_the_code_and_with_ci(page: Path) -> None:
    rows = re.findall(r"^\| (\d\.\d) \| yes \| (yes|no)", page.read_text("utf-8"), re.MULTILINE)
    assert rows == [(version, "yes") for version in reversed(SUPPORTED)]
    calls = (ROOT / ".ci/run").read_text()
    tested = re.findall(r'^ +python3 dev.py test --spark (\d\.\d) "\${list', calls, re.MULTILINE)
    assert sorted(tested) == list(SUPPORTED[:-1])
    assert "--all -m each_spark" in calls
    assert re.search(r"^{ .* && python3 dev.py test --durations", calls, re.MULTILINE)
    pinned = re.search(
        r'"pyspark\[sql\]>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text()
    )
    assert pinned is not None
    assert "install pyspark>={},<{}".format(*pinned.groups()) == WAY_OUT
