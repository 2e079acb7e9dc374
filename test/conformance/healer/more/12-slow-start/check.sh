#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
n=$(wc -l < "$STATE/starts")
[ "$n" = 1 ] || fail "a server that is merely slow was started $n times"
grep -q 9000 "$APP/warmup.json" || fail "warmup.json was changed"
if [ -n "${FAKELLM_LOG:-}" ] && [ -s "$FAKELLM_LOG" ]; then fail "the model was asked"; fi
exit 0
