#!/bin/bash
set -eu
cd "$APP"
sed -i "s/\"dev\":/\"serve\":/" package.json
git commit -qam 'rename a script'
