#!/bin/bash
set -eu
cd "$APP"
git checkout -q base -- lib/greet.js
git commit -qm 'fix: greet with a space'
