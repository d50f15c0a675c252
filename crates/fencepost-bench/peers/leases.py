"""Acquires and releases leases for `./bench 1 leases`: leases.py LIBRARY URL.

Each line of standard input is a number of leases to take one after the other. "done" is printed after them.
"""

import sys
from typing import Callable


def with_fencepost(url: str) -> Callable[[], None]:
    import fencepost

    def lease() -> None:
        with fencepost.run("python", ttl="1m", store=url, on_skip="raise") as run:
            bool(run)

    return lease


def with_redis_py(url: str) -> Callable[[], None]:
    import redis

    client = redis.Redis.from_url(url)

    def lease() -> None:
        lock = client.lock("redis-py", timeout=60)
        if not lock.acquire(blocking=False):
            raise RuntimeError("the lock is held")
        lock.release()

    return lease


def main() -> None:
    library, url = sys.argv[1:]
    lease = {"fencepost": with_fencepost, "redis-py": with_redis_py}[library](url)
    for line in sys.stdin:
        for _ in range(int(line)):
            lease()
        print("done", flush=True)


main()
