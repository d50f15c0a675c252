"""Bounded catch-up: an hourly roll-up on a machine that sleeps.

After a night of sleep it does the newest three hours, each once and for its own hour. The others are recorded as missed, and
`fencepost runs rollup` shows them. A machine beside it with the same store may run the same line:

    */5 * * * *  python3 /srv/rollup/bounded-catch-up.py /srv/rollup/hours

Usage: bounded-catch-up.py DIRECTORY [SCHEDULE]
"""

import json
import sys
from pathlib import Path

import fencepost


def roll_up(run: fencepost.Run, place: Path) -> None:
    """Writes the numbers of one hour. A second attempt at the same hour has the same key, and replaces the same file."""
    numbers = {"hour": run.slot.isoformat(), "key": run.key, "trigger": run.trigger}
    run.publish_file(place / f"{run.slot:%Y-%m-%dT%H%M%S}.json", json.dumps(numbers), resource="rollup")


def main(place: Path, schedule: str) -> None:
    while True:
        # Each claim gets one slot: first those that were missed, from the oldest, then the current one.
        with fencepost.run("rollup", schedule=schedule, catch_up=3, catch_up_within="12h", ttl="2m") as run:
            if not run:
                print(f"nothing to do: {run.result.reason}")
                return
            roll_up(run, place)
            print(f"{run.slot:%H:%M:%S} done ({run.trigger})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "0 * * * *")
