"""Concepts that both paths share, key by key and over columns."""
