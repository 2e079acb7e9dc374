#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
want / 'Hello, Ann'
same server.js package.json
committed
exit 0
