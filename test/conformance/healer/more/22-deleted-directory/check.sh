#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / 'Hello, Ann!'
same lib/greet.js lib/polite.js server.js
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "more was changed than what was gone"
exit 0
