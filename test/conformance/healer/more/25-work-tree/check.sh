#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / 'Hallo, Ann'
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "more was changed than what was gone: $(git -C "$APP" status --porcelain)"
exit 0
