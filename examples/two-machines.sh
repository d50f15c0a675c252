#!/usr/bin/env bash
# Two machines with a fenced write, as a script: both have this line in their crontab, and one of them writes the article.
#
#   0 12 * * *  FENCEPOST_STORE=rediss://redis.example.org /srv/news/two-machines.sh /mnt/shared/article.txt
#
# The script starts itself again under `fencepost run`, which renews the lease. If this machine stalls until its lease has passed on,
# fencepost ends the script when it wakes, and `publish` refuses the write in any case.
#
# Usage: two-machines.sh ARTICLE [SECONDS OF WORK] [TTL]
set -euo pipefail
article=$1 seconds=${2:-0} ttl=${3:-10m}

if [ -z "${FENCEPOST_RUN:-}" ]; then
    exec fencepost run article --slot day --ttl "$ttl" --produces "$article" -- "$0" "$@"
fi

echo "working"
sleep "$seconds" # stands for the slow part
printf 'The article of %s.\nWritten with token %s.\n' "$FENCEPOST_DATE" "$FENCEPOST_TOKEN" | fencepost publish file "$article"
