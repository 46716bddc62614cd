"""The examples do what they say: each prints what its docstring shows, and more is tried here."""

from __future__ import annotations

import inspect
import runpy
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import examples
from examples import custom_logic, orders_and_payments, own_source_and_sink, running_totals
from examples import dead_letters as dead_letters_example
from flow import run
from flow.testing import TestDriver, run_source
from recovery import RecoveryConfig

FOLDER = Path(next(iter(examples.__path__)))
