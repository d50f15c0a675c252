"""Two machines with a fenced write: both have this line in their crontab, so that the article appears although one is off.

    0 12 * * *  FENCEPOST_STORE=rediss://redis.example.org python3 /srv/news/two-machines.py /mnt/shared/article.txt

One of them gets the slot of the day; for the other there is nothing to do. If the first stalls (a slow model call, a closed lid)
until its lease has passed on, the second writes the article, and the first is refused where it writes, however late it wakes.

Usage: two-machines.py ARTICLE [SECONDS OF WORK] [TTL]
"""

import sys
import time

import fencepost


def write_article(date: str, seconds: float) -> str:
    """Stands for the slow part."""
    time.sleep(seconds)
    return f"The article of {date}.\n"


def main(path: str, seconds: float, ttl: str) -> int:
    @fencepost.job("article", slot="day", ttl=ttl)
    def article(run: fencepost.Run) -> None:
        print("working", flush=True)
        text = write_article(run.date, seconds)
        run.publish_file(path, f"{text}Written by {run.grant.host} with token {run.token}.\n")

    try:
        result = article()
    except (fencepost.LeaseLost, fencepost.StaleToken) as error:
        print(f"too late: {error.message}", flush=True)
        return 1
    print(result.status if result.granted else f"nothing to do: {result.reason}", flush=True)
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(words[0], float(words[1]) if len(words) > 1 else 0, words[2] if len(words) > 2 else "10m"))
