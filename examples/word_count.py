"""Word count: the smallest whole flow, from a text file to counts on the screen.

Stateless steps split lines into words and remove some counts; ``op.count_final`` counts each word,
and emits the counts when the input has ended. A flow whose input ends, run without recovery, is one
Spark batch job.

Run it on the verse beside this file:

    python examples/word_count.py

or with the command line that runs any flow, on any text:

    python -m flow.run 'examples.word_count:make_flow("README.md")'

It prints, in any order:

    row: 3
    merrily: 4
"""

from __future__ import annotations

import re
from pathlib import Path

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import TextSource
from flow.connectors.stdio import StdOutSink

VERSE = Path(__file__).parent / "samples" / "row_your_boat.txt"


def words_in(line: str) -> list[str]:
    """Split a line into words, in lower case."""
    return re.findall(r"\w+", line.lower())


def make_flow(path: str | Path = VERSE) -> Dataflow:
    """Return a flow that counts the words of a text, and removes words that appear only once."""
    graph = Dataflow("word_count")
    lines = op.input("lines", graph, TextSource(path))
    words = op.flat_map("words", lines, words_in)
    counts = op.count_final("counts", words, key=lambda word: word)
    repeated = op.filter_value("repeated", counts, lambda count: count > 1)
    op.output("out", repeated, StdOutSink(format=lambda item: f"{item[0]}: {item[1]}"))
    return graph


if __name__ == "__main__":
    run(make_flow())
