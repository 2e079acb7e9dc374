#!/bin/bash
set -eu
cd "$APP"
echo '{}' > package-lock.json
