#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / 7
[ "${CHECK_COMMIT:-0}" = 0 ] || grep -q 'def count' "$APP/shop/orders.py" || fail "the user's work is lost"
exit 0
