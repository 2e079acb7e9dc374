#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / 'apple'
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "more was changed than what was gone"
exit 0
