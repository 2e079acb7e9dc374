#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
get /health >/dev/null || fail "/health is not 200"
want /one first
same server.js generate.js
[ ! -e "$STATE/added" ] || { want /three third; grep -qx '/three third' "$APP/routes.txt" || fail "the user's route is lost"; }
exit 0
