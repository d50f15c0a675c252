"""Run it once, on fresh input, and let nothing stale write.

>>> import fencepost
>>>
>>> @fencepost.job("nightly", ttl="10m", needs=["reference"])
... def nightly(run):
...     run.publish_file("report.txt", make_report(run.inputs["reference"]))
>>>
>>> result = nightly()      # skipped: another machine is at it, or has done it

Or for the time of a block:

>>> with fencepost.run("nightly", ttl="10m") as run:
...     if not run:
...         return run.result
...     run.publish_file("report.txt", make_report())

The lease is renewed by another process, `fencepost session`, and every rule is there; this package decides nothing.
"""

from fencepost._answers import Gate, Grant, Published, Result, Upstream
from fencepost._binary import binary_path
from fencepost._errors import (
    AlreadyApplied,
    Error,
    Halted,
    LeaseLost,
    NotFound,
    NotGranted,
    ProgramError,
    Skipped,
    StaleToken,
    StoreError,
    UnknownOutcome,
    UsageError,
)
from fencepost._run import Run, gate, job, once, record, run
from fencepost._signal import Signal
from fencepost._version import __version__

__all__ = [
    "AlreadyApplied",
    "Error",
    "Gate",
    "Grant",
    "Halted",
    "LeaseLost",
    "NotFound",
    "NotGranted",
    "ProgramError",
    "Published",
    "Result",
    "Run",
    "Signal",
    "Skipped",
    "StaleToken",
    "StoreError",
    "UnknownOutcome",
    "Upstream",
    "UsageError",
    "__version__",
    "binary_path",
    "gate",
    "job",
    "once",
    "record",
    "run",
]
