#!/bin/bash
set -eu
cd "$APP"
sed -i "s/^  n = fs.readFileSync(fd.*/&\n  fs.closeSync(fd);/" lib/feed.js
