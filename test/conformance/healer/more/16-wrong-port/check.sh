#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
want /title 'My Shop'
steady 3
same server.js package.json
exit 0
