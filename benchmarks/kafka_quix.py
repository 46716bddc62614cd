"""Quix Streams on `benchmarks.kafka_job`: at least once, its default, in one process."""

from __future__ import annotations

import logging
import uuid
import warnings
from datetime import timedelta

from quixstreams import Application

from benchmarks.kafka_job import GRACE_SECONDS, WINDOW_MS, Job, answers_to, run_as_asked, seconds_of


def work(job: Job) -> float:
    """Return the seconds of a whole run."""
    logging.disable(logging.WARNING)
    # The libraries of Quix Streams warn of each other.
    warnings.simplefilter("ignore")
    app = Application(
        broker_address=job.servers,
        consumer_group=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        state_dir=f"{job.scratch}/state",
        loglevel=None,
    )
    source = app.topic(job.source, value_deserializer="json", key_deserializer="str")
    sink = app.topic(job.sink, value_serializer="json", key_serializer="str")
    frame = app.dataframe(source)
    (
        frame.apply(lambda value: value["amount"])
        .tumbling_window(
            timedelta(milliseconds=WINDOW_MS), grace_ms=timedelta(seconds=GRACE_SECONDS)
        )
        .sum()
        .final()
        .to_topic(sink)
    )
    # Quix Streams counts results; each is the sum of a closed window.
    results = len(answers_to(job.messages))
    return seconds_of(lambda: app.run(count=results, collect=False))


if __name__ == "__main__":
    run_as_asked(work)
