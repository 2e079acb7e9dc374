#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /hello/Ann 'Hello, Ann!'
same package.json package-lock.json server.js vendor/tinyrouter-1.0.0.tgz
[ "${CHECK_COMMIT:-0}" = 0 ] || [ "$(git -C "$APP" log -1 --format='%an %s' --name-only)" = $'tend healer The cause is repaired.\n\npackage-lock.json' ] || fail "the commit is not that of the lock file: $(git -C "$APP" log -1 --name-only)"
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "it is not all committed"
exit 0
