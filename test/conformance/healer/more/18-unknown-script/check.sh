#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / plain
same server.js
(cd "$APP" && node -e 'const s = require("./package.json").scripts; if (s.dev !== "node server.js" || !s.test) process.exit(1)') || fail "the scripts are not what they should be"
exit 0
