"""Reading of Spark's logs of an epoch."""

from __future__ import annotations

import pytest

from recovery.reading.checkpoint_reader import EpochLog, state_ids

HEAD = (
    'v2\n{"batchWatermarkMs":0,"conf":{"spark.sql.streaming.stateStore.compression.codec":"zstd"}}'
)
OWN = '{"v": 1, "now": 5, "down": 2, "end": 1, "at": {"clicks": 7}, "read": []}'


def test_an_epochs_log_has_the_offset_of_the_flow() -> None:
    log = EpochLog.parse(f"{HEAD}\n{OWN}")
    assert (log.codec, log.moment.now_us, log.moment.running_us) == ("zstd", 5, 3)
    assert (log.offset.at, log.sparks) == ({"clicks": 7}, ())


def test_an_epochs_log_may_have_offsets_of_sparks_own_sources() -> None:
    log = EpochLog.parse(f'{HEAD}\n{OWN}\n{{"topic": {{"0": 3}}}}\n-')
    assert (log.offset.at, log.sparks) == ({"clicks": 7}, ({"topic": {"0": 3}}, None))


@pytest.mark.parametrize(
    "text", ["", "v2", f"{HEAD}", f"{HEAD[:60]}", f"{HEAD}\n{OWN[:30]}", f"{HEAD}\n[]"]
)
def test_an_incomplete_log_of_an_epoch_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        EpochLog.parse(text)


def test_an_epochs_commit_names_the_state_of_each_partition() -> None:
    text = 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"1":[["c"]],"0":[["a"],["b"]]}}'
    assert state_ids(text) == {0: ("a", "b"), 1: ("c",)}
    assert state_ids('v1\n{"nextBatchWatermarkMs":0}') == {}
    with pytest.raises(ValueError, match="not whole"):
        state_ids("v2")
