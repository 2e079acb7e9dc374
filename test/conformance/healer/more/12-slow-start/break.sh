#!/bin/bash
set -eu
cd "$APP"
# the index has grown: it starts slowly, and well
echo '{ "warmupMs": 9000 }' > warmup.json
: > "$STATE/starts"
