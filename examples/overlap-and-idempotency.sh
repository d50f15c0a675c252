#!/usr/bin/env bash
# Overlap and idempotency: a trigger during a run is skipped, and an invoice is charged once.
#
#   overlap-and-idempotency.sh INVOICES     (a file with one "customer amount" per line)
#
# Put it into a crontab as it is. A trigger that comes while a run is going exits 0 at once. A run that died half-way is repeated, and
# charges only what was not charged before.
set -euo pipefail

# The part under the lease: fencepost starts this script again with --charge.
if [ "${1:-}" != --charge ]; then
    exec fencepost run invoices --ttl 5m -- "$0" --charge "$@"
fi
shift

# Stands for a provider's client. It gets the key of the item, to recognise a repetition on its side. It must exit above 128, or die by a
# signal, if it cannot know whether the money has moved.
charge() {
    sleep "${CHARGE_SECONDS:-0}"
    echo "$FENCEPOST_KEY $*" >>"${CHARGED:-charged.log}"
}
export -f charge

failed=0
while read -r customer amount; do
    # The key names the item of work: its kind, for whom and when. A second amount under the same key is refused.
    params=$(mktemp)
    echo "$amount" >"$params"
    fencepost --quiet once "invoices/2026-11/$customer" --params "$params" -- bash -c 'charge "$@"' charge "$customer" "$amount" || failed=1
    rm -f "$params"
done <"${1:-invoices.txt}"
exit "$failed"
