"""Packets: many items of one stream and shard, as bytes."""
