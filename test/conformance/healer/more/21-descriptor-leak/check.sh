#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
pid=$(field /whoami pid)
sleep 2 # in which it would leak a hundred
n=$(ls "/proc/$pid/fd" | wc -l)
[ "$n" -lt 60 ] || fail "it has $n descriptors"
want /count '{"n":2}'
same server.js package.json items.txt
committed
exit 0
