"""Segments of windowing state: encoding, decoding, snapshots of one key."""
