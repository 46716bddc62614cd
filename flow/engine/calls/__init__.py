"""Calls of async functions: the event loop and the resources of a process, and a chunk's calls."""
