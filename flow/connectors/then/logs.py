"""One log of a source, shared by its history and its live part."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from flow.connectors.source import Json, SourceLog


@dataclass(frozen=True)
class PartLog(SourceLog):
    """Log of one part of a source, kept in the log of the whole.

    An entry of the whole log is ``[part, entry]``. Its summary is JSON: for each part, the part's
    summary in base64 and the part's entries at the time of the summary.

    Attributes:
        whole: the log of the source.
        part: name of the part.
    """

    whole: SourceLog
    part: str

    def summary(self) -> bytes | None:
        """Return the summary of the part's last `compact`; ``None`` if there was none."""
        text = self._summaries().get(self.part, {}).get("summary")
        return None if text is None else base64.b64decode(text)

    def entries(self) -> list[Json]:
        """Return the part's entries since its last `compact`, in order."""
        before = self._summaries().get(self.part, {}).get("entries", [])
        return [*before, *(entry for part, entry in self.whole.entries() if part == self.part)]

    def append(self, entry: Json) -> None:
        """Add an entry of the part."""
        self.whole.append([self.part, entry])

    def compact(self, summary: bytes) -> None:
        """Replace the part's entries by a summary; the other parts keep theirs."""
        parts = self._summaries()
        for part, entry in self.whole.entries():
            parts.setdefault(part, {"summary": None, "entries": []})["entries"].append(entry)
        parts[self.part] = {"summary": base64.b64encode(summary).decode(), "entries": []}
        self.whole.compact(json.dumps(parts).encode())

    def _summaries(self) -> dict[str, dict[str, Json]]:
        content = self.whole.summary()
        return {} if content is None else dict(json.loads(content))
