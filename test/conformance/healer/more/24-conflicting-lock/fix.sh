#!/bin/bash
set -eu
cd "$APP"
sed -i -e '/^<<<<<<< /d' -e '/^=======$/,/^>>>>>>> /d' package-lock.json
