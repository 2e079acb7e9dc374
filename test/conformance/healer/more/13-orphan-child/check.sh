#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
[ ! -e "$STATE/crash-once" ] || fail "it has not crashed yet"
p=$(field /whoami pid)
[ "$p" = "$(tail -1 "$STATE/workers")" ] || fail "the child of the run before answers"
for w in $(cat "$STATE/workers"); do
  if [ "$w" != "$p" ] && [ -d "/proc/$w" ] && ! grep -q '^State:.Z' "/proc/$w/status"; then fail "the orphan $w still runs"; fi
done
steady 3
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "files were changed"
exit 0
