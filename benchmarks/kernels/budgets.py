"""The budget of each kernel, in instructions a row: the count when the budget was last written.

The file is ``budgets.json``, beside this module; ``run.py --write`` renews it. A kernel may take
twice its budget.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

FILE = Path(__file__).with_name("budgets.json")
MOST_TIMES = 2.0
"""The greatest ratio of a count to its budget; versions of numpy and Arrow differ by less."""
MOST_BESIDE = 1.03
"""The greatest ratio of a count to that of another checkout, with the same interpreter."""


@dataclass(frozen=True)
class Setting:
    """The machine and the versions that counts depend on, besides the code."""

    machine: str
    python: str
    numpy: str
    pyarrow: str

    @classmethod
    def here(cls) -> Setting:
        """Return the setting of this process."""
        version = platform.python_version()
        return cls(platform.machine(), version, np.__version__, pa.__version__)

    def __str__(self) -> str:
        return f"Python {self.python}, numpy {self.numpy}, pyarrow {self.pyarrow}"


@dataclass(frozen=True)
class Budgets:
    """Instructions a row, by kernel.

    Attributes:
        setting: the setting of the counts.
        by_kernel: the budget of each kernel, by name.
    """

    setting: Setting
    by_kernel: Mapping[str, float]

    @classmethod
    def read(cls, file: Path = FILE) -> Budgets:
        """Return the budgets of a file; no budgets if the file does not exist."""
        if not file.exists():
            return cls(Setting.here(), {})
        content = json.loads(file.read_text())
        return cls(Setting(**content["counted_with"]), content["instructions_a_row"])

    def write(self, file: Path = FILE) -> None:
        """Write the budgets to a file."""
        rounded = {name: round(budget, 1) for name, budget in self.by_kernel.items()}
        content = {"counted_with": asdict(self.setting), "instructions_a_row": rounded}
        file.write_text(json.dumps(content, indent=2) + "\n")

    def ratio(self, kernel: str, counted: float) -> float | None:
        """Return the ratio of a count to the kernel's budget; ``None`` without a budget."""
        budget = self.by_kernel.get(kernel)
        return counted / budget if budget else None

    def problem(self, kernel: str, counted: float) -> str | None:
        """Return an error text if a kernel's count is too great or has no budget, else ``None``."""
        ratio = self.ratio(kernel, counted)
        if ratio is not None and ratio <= MOST_TIMES:
            return None
        renew = f"python benchmarks/kernels/run.py --write {kernel}"
        if ratio is None:
            return (
                f"the kernel {kernel} takes {counted:,.1f} instructions a row and has no budget: "
                f"write one with '{renew}'"
            )
        return (
            f"the kernel {kernel} takes {counted:,.1f} instructions a row, {ratio:.2f} times its "
            f"budget of {self.by_kernel[kernel]:,.1f}, and may take {MOST_TIMES:g} times that "
            f"(counted with {self.setting}; now with {Setting.here()}): make it cheaper, or, where "
            f"it has to cost as much, renew its budget with '{renew}'"
        )
