#!/bin/bash
set -eu
cd "$APP"
sed -i 's/setInterval(poll, 20)/setTimeout(poll, 20)/' lib/feed.js   # it looks once, and never again
