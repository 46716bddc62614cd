"""Removal of credentials from texts and from the names that checkpoints hold."""

from __future__ import annotations

import pytest

from flow.connectors.files.filesystems import without_credentials, without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://me:secret@bucket/data", "s3://bucket/data"),
        ("https://token@host:80/a answers 401", "https://host:80/a answers 401"),
        ("hdfs://a:b@c@node/x, hdfs://d@node/y", "hdfs://node/x, hdfs://node/y"),
        ("gs://@bucket", "gs://bucket"),
        ("abfss://box@account.net/a", "abfss://box@account.net/a"),
        ("abfss://box:key@account.net/a", "abfss://account.net/a"),
        ("abfs://a@b/c?client_secret=x&tenant_id=t", "abfs://a@b/c?client_secret=***&tenant_id=t"),
        ("'abfs://a@b/c?sv=1&sig=x%2F' fails", "'abfs://a@b/c?sv=1&sig=***' fails"),
        ("s3://bucket/a?region=token", "s3://bucket/a?region=token"),
        # An "@" of a path, and one of another word, is not before a host.
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("http://host is down, ask me@example.org", "http://host is down, ask me@example.org"),
        ("mail@example.org", "mail@example.org"),
    ],
)
def test_a_text_shows_no_user_and_no_token(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.mark.parametrize(
    ("uri", "stored"),
    [
        ("s3://me:secret@bucket/data", "s3://bucket/data"),
        ("hdfs://me@node/data", "hdfs://me@node/data"),
        ("abfs://a@b/c?sv=1&sig=x", "abfs://a@b/c?sv=1&sig=***"),
        ("abfss://box@account.net/a", "abfss://box@account.net/a"),
    ],
)
def test_the_name_in_a_checkpoint_has_a_user_that_has_no_password(uri: str, stored: str) -> None:
    assert without_passwords(uri) == stored
