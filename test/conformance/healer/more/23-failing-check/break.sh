#!/bin/bash
set -eu
cd "$APP"
sed -i "s/Hello, /Hello/" lib/greet.js
git commit -qam 'shorten it'
