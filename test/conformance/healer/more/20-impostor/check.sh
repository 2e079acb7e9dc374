#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
[ "$(field /whoami pid)" != "$(cat "$STATE/impostor.pid" 2>/dev/null)" ] || fail "the other program answers"
same server.js package.json
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "files were changed for a fault that is not in the files"
exit 0
