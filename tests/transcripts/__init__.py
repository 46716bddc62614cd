"""Transcripts: one module a subject, each with its builders and a list called ``TRANSCRIPTS``.

`tests.support.transcript` says how they are written, `tests/test_transcripts.py` plays them.
"""
