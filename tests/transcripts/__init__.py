"""Transcripts, in a folder for each subject, and the builders of their flows in `flows`.

`tests.support.transcript` describes the format, `tests/test_transcripts.py` plays all transcripts.
"""
