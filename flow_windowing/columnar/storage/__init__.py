"""Segments of shard state: encoding, decoding, and conversion from and to snapshots of keys."""
