#!/bin/bash
set -eu
cd "$APP"
sed -i "s/\"serve\":/\"dev\":/" package.json
