#!/bin/bash
set -eu
cd "$APP"
sed -i 's/^    "serve": "node server.js",$/&\n    "dev": "node server.js",/' package.json
