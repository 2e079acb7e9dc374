#!/bin/bash
set -eu
cd "$APP"
git checkout -q base -- total.js
git commit -qm "fix: close the loop" --allow-empty
