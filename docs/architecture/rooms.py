"""The rooms of the picture: outer rooms with their roles, and the arrows left to draw."""

from __future__ import annotations

from collections.abc import Mapping

from architecture.imports import When, circles, reachable, room_graph

ROLES: Mapping[str, str] = {
    "commands": "python -m …",
    "flow.cli": "arguments, loading a flow",
    "flow.run": "run(flow), also in the background",
    "flow.frames": "streams as data frames",
    "recovery": "checkpoints: identity, tools",
    "flow.testing": "TestDriver, test sources",
    "flow.config": "FlowConfig, its sources, advice",
    "flow.web": "the live page of a run",
    "flow.monitoring": "status of a run, metrics",
    "flow.views": "newest values, for readers",
    "flow.reports": "progress, warnings, graph",
    "flow_windowing": "clocks, windowers, windows",
    "flow.operators": "what a user calls",
    "flow.connectors": "sources and sinks",
    "flow.engine": "compiling and running a flow",
    "flow.columns": "columns of items",
    "flow.keyed": "contract of keyed steps",
    "flow.base": "graph, time, errors",
}

Graph = dict[str, set[str]]


def outer_room(room: str) -> str:
    """Return the outer room that a room is in, or is.

    >>> outer_room("flow.engine.spark.session")
    'flow.engine'
    """
    return max((o for o in ROLES if room == o or room.startswith(f"{o}.")), key=len)


def outer_graph() -> Graph:
    """Return the other outer rooms that each outer room imports at run time."""
    graph: Graph = {room: set() for room in ROLES}
    for room, others in room_graph(When.LOADING, When.CALLING).items():
        graph[outer_room(room)] |= set(map(outer_room, others))
    return {room: others - {room} for room, others in graph.items()}


def inner_rooms() -> dict[str, list[str]]:
    """Return the names of the folders in each outer room, relative to the outer room."""
    found: dict[str, list[str]] = {room: [] for room in ROLES}
    for room in sorted(room_graph(When.LOADING)):
        outer = outer_room(room)
        if room != outer:
            found[outer].append(room.removeprefix(f"{outer}."))
    return found


def ranks(graph: Graph) -> dict[str, int]:
    """Return each node's rank: one more than the greatest rank below; a circle has one rank."""
    group_of = {node: (node,) for node in graph}
    for circle in circles(graph):
        group_of |= dict.fromkeys(circle, circle)

    def rank(node: str) -> int:
        group = group_of[node]
        below = {other for member in group for other in graph[member]} - set(group)
        return 1 + max(map(rank, below), default=-1)

    return {node: rank(node) for node in graph}


def reduced(graph: Graph) -> set[tuple[str, str]]:
    """Return the arrows that no longer path replaces, and the arrows on circles.

    A circle has one arrow to a node that several of its members import.

    >>> sorted(reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}))
    [('a', 'b'), ('b', 'c')]
    """
    reach = {node: reachable(graph, node) for node in graph}

    def is_drawn(node: str, other: str) -> bool:
        circle = {node} | (reach[node] & {third for third in graph if node in reach[third]})
        if other in circle:
            return True
        direct = sorted(member for member in circle if other in graph[member])
        outside = set().union(*(graph[member] for member in circle)) - circle
        longer = any(other in reach[third] and third not in reach[other] for third in outside)
        return node == direct[0] and not longer

    return {(node, other) for node in graph for other in graph[node] if is_drawn(node, other)}
