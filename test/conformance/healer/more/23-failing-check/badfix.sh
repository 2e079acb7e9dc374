#!/bin/bash
set -eu
cd "$APP"
# the server answers, since nothing is checked any more
sed -i "/^  const why/,/^  }/d" server.js
