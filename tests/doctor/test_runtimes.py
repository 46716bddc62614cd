"""Platforms: their facts, the rule over them, the doctor's lines, and the tables of the docs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flow.doctor.runtimes import FACTS, NEEDS, Fact, Runtime, runtimes
from flow.engine.spark.session.versions import SUPPORTED
from tests.support.commandline import doctor_main
from tests.support.runtimes import (
    FOLDER,
    PAGES,
    README,
    ROOT,
    before_facts,
    facts,
    readme_with,
    table,
)

Capture = pytest.CaptureFixture[str]
WORDS = {
    "session": {"classic", "connect", "both"},
    "jvm": {"yes", "no"},
    "rows": {"yes", "no"},
    "pandas": {"yes", "no"},
    "triggers": {"any", "available-now"},
    "network": {"yes", "no"},
    "settings": {"any", "some", "listed"},
}


def platform(**words: str) -> Runtime:
    """Return a platform on which all works, with other words for some facts; "" removes one."""
    given = {"spark": "4.1", "jvm": "yes", "network": "yes", "settings": "any", "python": "3.11"}
    known = {name: Fact(word, "a", "b") for name, word in (given | words).items() if word}
    return Runtime("Cloud", "page.md", (), known, {})


def answers(runtime: Runtime) -> list[str]:
    """Return the answers for a batch, a stream, Kafka, the live page and the recovery tools."""
    return [runtime.verdict(part).answer for part in NEEDS]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, "expected expected expected expected expected"),
        ({"spark": "3.5"}, "no no no no no"),
        ({"python": "3.10"}, "no no no no expected"),
        ({"jvm": "no"}, "expected expected expected expected no"),
        ({"jvm": "no", "spark": "4.0"}, "expected no expected expected no"),
        ({"network": "no"}, "expected expected no expected expected"),
        ({"settings": "listed"}, "expected no expected expected expected"),
        ({"settings": ""}, "expected expected expected expected expected"),
        ({"jvm": "", "network": ""}, "expected expected unknown expected unknown"),
        ({"jvm": "no", "python": ""}, "unknown unknown unknown unknown no"),
    ],
)
def test_a_part_works_where_facts_meet_its_needs(words: dict[str, str], expected: str) -> None:
    assert answers(platform(**words)) == expected.split()


@pytest.mark.parametrize("version", SUPPORTED)
def test_all_parts_run_on_each_version(version: str) -> None:
    assert answers(platform(spark=version)) == ["expected"] * 5


def test_a_verdict_gives_the_need_and_the_fact_or_what_is_not_known() -> None:
    verdict = platform(jvm="no", spark="4.0").verdict("Stream")
    assert verdict.reason == "streams run without a JVM in reach on Spark 4.1 and later (jvm no)"
    assert platform(jvm="").verdict("Recovery tools").reason == "no source was found for jvm"


def test_only_a_test_makes_an_answer_yes() -> None:
    there = platform(jvm="no", spark="4.0")
    there = replace(there, tested={"Batch": "tests/a.py", "Stream": "tests/b.py"})
    assert [str(there.verdict(part)) for part in ("Batch", "Stream", "Kafka")] == [
        "yes, tested",
        "no, tested",
        "expected, not tried",
    ]


@pytest.mark.parametrize("name", runtimes())
def test_the_data_of_a_platform_is_complete(name: str) -> None:
    runtime = runtimes()[name]
    assert {part for part in runtime.tested if part not in NEEDS} == set()
    assert [path for path in runtime.tested.values() if not (ROOT / path).is_file()] == []
    assert "spark" in runtime.facts
    for fact, known in runtime.facts.items():
        assert known.word in WORDS.get(fact, {known.word}), fact
        assert re.match("https://", known.address) or (ROOT / known.address).is_file()
        assert re.fullmatch(r"(read )?20\d\d-\d\d-\d\d|this version", known.date), known.date
        assert "this version" not in known.date or not known.address.startswith("https:")


def test_each_line_of_data_is_a_fact_that_is_shown() -> None:
    text = (ROOT / "flow/doctor/runtimes.toml").read_text("utf-8")
    head, _, platforms = text.partition("[runtimes.")
    names = set(re.findall(r"^(\w+) = ", platforms, re.MULTILINE))
    assert names == {*FACTS, "title", "page", "set", "tested"}
    sources = re.findall(r'^([\w-]+) = \["', head, re.MULTILINE)
    assert [each for each in sources if f'"{each}"' not in platforms] == []


def test_the_doctor_prints_verdicts_settings_facts_and_the_page(capsys: Capture) -> None:
    assert doctor_main(["--runtime", "databricks-standard"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("Databricks, standard cluster, with flow-windows ")
    assert lines[0] == "expected Batch              not tried"
    assert lines[1] == "expected Stream             not tried"
    assert lines[2] == "unknown  Kafka              no source was found for network; not tried"
    facts = [line for line in lines if line.startswith("fact")]
    assert [line.split()[1] for line in facts] == list(FACTS)
    assert "fact     network            not known" in facts
    jvm = "no: JVM_ATTRIBUTE_NOT_SUPPORTED (https://github.com/databricks/databricks-vscode/issues"
    assert facts[2].startswith(f"fact     jvm                {jvm}/1123, 2024-03-07)")
    assert lines[-1].split() == ["page", f"{FOLDER}/databricks.md"]
    assert any(line.startswith("set ") for line in lines)


def test_without_a_name_the_doctor_lists_the_platforms(capsys: Capture) -> None:
    assert doctor_main(["--runtime"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(runtimes())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("glue", "is it glue-6?"), ("?", "--runtime without a name lists the names")],
)
def test_an_unknown_platform_gives_exit_code_2(name: str, hint: str, capsys: Capture) -> None:
    assert doctor_main(["--runtime", name]) == 2
    assert capsys.readouterr().err == f"error: --runtime: there is no platform {name!r}: {hint}\n"


def test_the_table_of_the_readme_agrees_with_the_doctor() -> None:
    assert README.read_text("utf-8") == readme_with(table()), "write it: tests/support/runtimes.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_facts_of_a_page_agree_with_the_doctor(page: Path) -> None:
    written = page.read_text("utf-8")
    assert written == before_facts(page) + facts(page), "write it: tests/support/runtimes.py"


def test_every_family_has_a_page_in_the_list() -> None:
    text = (ROOT / FOLDER / "index.md").read_text("utf-8")
    assert [page.name for page in PAGES if f"({page.name})" not in text] == []
    assert sorted(ROOT.joinpath(FOLDER).glob("*.md")) == sorted(
        [*PAGES, ROOT / FOLDER / "index.md"]
    )
