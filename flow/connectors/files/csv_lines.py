"""Reading CSV as columns, typed by a schema or all text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.csv

from flow.connectors.files.checks import Schema, check_flag, checked_schema
from flow.connectors.files.line_source import LineParser, LineSource, Parsed
from flow.connectors.files.line_source import read_lines, utf8_problem
from flow.connectors.files.lines import Block, LineRange
from flow.connectors.files.planning import Piece
from flow.connectors.source import Batch
from flow.errors import FlowBuildError, FlowTypeError, SourceError, shorten
