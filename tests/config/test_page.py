"""The page of the configuration agrees with the table of fields and with the doctor."""

from __future__ import annotations

import re
from pathlib import Path

from flow.config.flow_config import FIELDS, ConfigField, Form

PAGE = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text("utf-8")


def row(field: ConfigField) -> str:
    """Return the row of a field in the page's table."""
    option = f"`{field.option} {field.type.metavar}`"
    if field.type.form is Form.OPTIONAL:
        option = f"`{field.option} [{field.type.metavar}]`"
    if field.type.form is Form.FLAG:
        option = f"`{field.option}`, `--no-{field.option.removeprefix('--')}`"
    cells = (f"`{field.name}`", field.meaning, field.default_text, f"`{field.variable}`", option)
    return f"| {' | '.join(cells)} |"


def test_the_table_has_a_row_for_each_field_in_order() -> None:
    heading = (
        "| field | meaning | default | environment variable | option |\n|---|---|---|---|---|\n"
    )
    _, found, rest = PAGE.partition(heading)
    assert found
    assert rest.partition("\n\n")[0].splitlines() == [row(field) for field in FIELDS]


def test_the_sample_of_the_doctor_has_lines_of_its_form() -> None:
    (sample,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    *lines, last = sample.splitlines()
    assert len(lines) > 10
    assert [each for each in lines if not re.match(r"(ok|warning|problem) +[A-Z]", each)] == []
    assert re.fullmatch(r"\d+ problems?, \d+ warnings?", last)
