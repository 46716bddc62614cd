"""A flow's checkpoint directory: whose it is, how it is laid out, and how a run starts from it.

    <path>/flow.json      the identity: flow, run id, layout, fingerprint; replaced at once
    <path>/lock.json      who runs on it now; in ``lock-<token>.json``, when it last said so
    <path>/change.json    what a tool is about to change, while it does
    <path>/spark          Spark's own checkpoint: offsets, commits and state; ``spark-<n>`` in a
                          later generation
    <path>/seed-<n>       the state that generation n starts with
    <path>/sources/…      what sources remember, such as the files they have seen
    <path>/inputs/…       static data frames, written down

State that moves to another layout starts a new *generation*: a Spark checkpoint of its own, whose
first epoch puts the seed in place, and goes on where the last one ended.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flow.engine.checkpoint.admission import Admission, Recovery
from flow.engine.checkpoint.storage import Storage
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.plan.plan import Plan
from flow.errors import CheckpointError

Json: TypeAlias = Any

VERSION = 2
NAME = "flow.json"
CHANGE = "change.json"
"""The journal of a tool: what it is about to change, and the command that finishes it."""

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Identity:
    """What a checkpoint says of itself.

    Attributes:
        flow_id: the flow's name.
        run_id: what sinks know the checkpoint by: differs between fresh starts.
        shards: how many slices the key space has.
        partitions: how many partitions each level has.
        generation: how often its state has moved to another layout.
        first_epoch: the number of the generation's first epoch.
        start: the offset that the generation starts from, as JSON; ``None`` for a fresh start.
        begun: the offset of an epoch that the generation before had begun and not finished.
        recovery: what the flow's recovery settings keep: its fingerprint.
        dropping: the names of state that is being dropped.
        rewinds: how often it has been set back.
        earlier: what `recovery` was until it changed, each with the last epoch it was good for, in
            order: what setting the checkpoint back to such an epoch brings back.
    """

    flow_id: str
    run_id: str
    shards: int
    partitions: int
    generation: int = 0
    first_epoch: int = 0
    start: Json = None
    begun: Json = None
    recovery: Json = None
    dropping: tuple[str, ...] = ()
    rewinds: int = 0
    earlier: tuple[tuple[int, Json], ...] = ()

    @property
    def spark(self) -> str:
        """The directory of Spark's own checkpoint."""
        return f"spark-{self.generation}" if self.generation else "spark"

    @property
    def seed(self) -> str:
        """The directory of the state that the generation starts with."""
        return f"seed-{self.generation}"

    def to_json(self) -> Json:
        """The identity as JSON."""
        return {
            "version": VERSION,
            **self.__dict__,
            "dropping": list(self.dropping),
            "earlier": [list(one) for one in self.earlier],
        }

    def admitting(self, recovery: Json, dropping: tuple[str, ...], epochs: list[int]) -> Identity:
        """The identity as a run goes on with it.

        Args:
            recovery: what the flow's recovery settings keep from now on.
            dropping: the names of state that is being dropped from now on.
            epochs: the epochs that are done and kept.
        """
        earlier = [one for one in self.earlier if epochs and one[0] >= epochs[0]]
        known = earlier[-1][0] if earlier else -1
        if recovery != self.recovery and epochs and epochs[-1] > known:
            earlier.append((epochs[-1], self.recovery))
        return replace(self, recovery=recovery, dropping=dropping, earlier=tuple(earlier))

    def set_back(self, epoch: int) -> Identity:
        """The identity as it was at the end of an epoch, when what came after it is undone."""
        now = replace(self, rewinds=self.rewinds + 1)
        was = next((one for until, one in self.earlier if until >= epoch), None)
        if was is None:
            return now
        earlier = tuple(one for one in self.earlier if one[0] < epoch)
        return replace(now, recovery=was, dropping=(), earlier=earlier)

    @classmethod
    def from_json(cls, content: Json, root: str) -> Identity:
        """The identity in JSON made by `to_json`.

        Raises:
            CheckpointError: when it is not one, or was written in a newer format.
        """
        where = f"{root}/{NAME}"
        try:
            version, _ = int(content["version"]), content["flow_id"]
            if version > VERSION:
                raise CheckpointError(
                    f"{where} was written in format {version}, this version reads {VERSION}: "
                    "run the version that wrote it"
                )
            known = {one: content[one] for one in cls.__dataclass_fields__ if one in content}
            lists = {
                "dropping": tuple(content.get("dropping", ())),
                "earlier": tuple((int(until), one) for until, one in content.get("earlier", ())),
            }
            return cls(**{**known, **lists})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{where} is not a flow's checkpoint") from error


def read_identity(storage: Storage) -> Identity:
    """Read who a checkpoint is.

    Raises:
        CheckpointError: when the directory is not a checkpoint, or was written in a newer format.
    """
    if not storage.exists(NAME):
        raise CheckpointError(f"{storage.root} is not a flow's checkpoint: it has no {NAME}")
    return Identity.from_json(storage.read(NAME), storage.root)


def check_settled(storage: Storage) -> None:
    """Refuse a checkpoint of which a tool has changed a part and was cut off.

    Raises:
        CheckpointError: with the command that does the rest.
    """
    if storage.exists(CHANGE):
        raise CheckpointError(
            f"{storage.root}: a tool was cut off while it changed the checkpoint; do the rest "
            f"with: {storage.read(CHANGE)['finish']}"
        )


@dataclass
class Checkpoint:
    """A checkpoint that a run has opened.

    Attributes:
        storage: its directory.
        identity: what it says of itself.
        resuming: whether there has been a run before.
        said: what the user is to be told.
    """

    storage: Storage
    identity: Identity
    resuming: bool
    said: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        storage: Storage,
        plan: Plan,
        recovery: Recovery | None,
        cores: int,
        shards: int | None,
        partitions: int | None,
    ) -> Checkpoint:
        """Open a checkpoint for a run, or make it.

        Args:
            storage: its directory.
            plan: the flow.
            recovery: what decides whether the flow may go on from it.
            cores: how many tasks can run at a time.
            shards: how many slices of the key space are asked for.
            partitions: how many partitions a level are asked for.

        Raises:
            CheckpointError: when it is another flow's, or does not fit the flow as it is now.
        """
        check_settled(storage)
        resuming = storage.exists(NAME)
        if resuming:
            identity = read_identity(storage)
            _check_flow(identity, plan, storage.root)
            _say_layout(identity, shards, partitions, storage.root)
        else:
            _check_empty(storage)
            dealt = partitions or min(cores, 32)
            sliced = shards or max(DEFAULT_SHARDS, dealt)
            identity = Identity(plan.flow_id, uuid.uuid4().hex, sliced, dealt)
        admission = Admission()
        if recovery is not None:
            admission = recovery.admit(identity.recovery, plan, identity.dropping)
        dropping = tuple(dict.fromkeys([*identity.dropping, *admission.dropped]))
        admitted = identity.admitting(
            admission.kept, dropping, _epochs(storage, identity, "commits")
        )
        if not resuming or admitted != identity:
            storage.write(NAME, admitted.to_json())
        return cls(storage, admitted, resuming, admission.said)

    def fitted(self, plan: Plan) -> Plan:
        """The plan, with where its steps keep their state here."""
        kept = self.identity.recovery or {}
        names = kept.get("names", {}) if isinstance(kept, dict) else {}
        return replace(plan, kept_as=dict(names), dropped=self.identity.dropping)

    def committed(self) -> None:
        """Called after each epoch: what was to be dropped is gone now."""
        if self.identity.dropping:
            self.identity = replace(self.identity, dropping=())
            self.storage.write(NAME, self.identity.to_json())


def _epochs(storage: Storage, identity: Identity, log: str) -> list[int]:
    """The epochs that are in one of Spark's logs, in order."""
    names = storage.names(f"{identity.spark}/{log}")
    return sorted(identity.first_epoch + int(name) for name in names if name.isdecimal())


def _check_flow(identity: Identity, plan: Plan, root: str) -> None:
    if identity.flow_id != plan.flow_id:
        raise CheckpointError(
            f"{root} is the checkpoint of flow {identity.flow_id!r}, not of {plan.flow_id!r}: "
            "give each flow a directory of its own"
        )


def _check_empty(storage: Storage) -> None:
    """Refuse a directory that has a Spark checkpoint, but not what says whose it is."""
    if storage.names("spark/offsets"):
        raise CheckpointError(
            f"{storage.root} has a Spark checkpoint but no {NAME}: put that file back from a "
            "copy, or use an empty directory to start over"
        )


def _say_layout(identity: Identity, shards: int | None, partitions: int | None, root: str) -> None:
    """Say so when a checkpoint keeps another layout than is asked for."""
    asked_for = {"shards": (shards, identity.shards)}
    asked_for["partitions"] = (partitions, identity.partitions)
    for name, (asked, kept) in asked_for.items():
        if asked not in (None, kept):
            said = (
                "%s=%s was asked for, but checkpoint %s was made with %s and keeps it "
                "(`python -m recovery rescale` moves it to another layout)"
            )
            logger.warning(said, name, asked, root, kept)
