#!/bin/bash
set -eu
cd "$APP"
sed -i "s/\"serve\": \"node server.js\"/\"dev\": \"node -e process.exit(0)\"/" package.json
