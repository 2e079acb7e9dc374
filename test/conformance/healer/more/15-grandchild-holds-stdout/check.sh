#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / hello
same lib/greet.js server.js
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "other files were changed"
exit 0
