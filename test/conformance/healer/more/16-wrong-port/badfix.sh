#!/bin/bash
set -eu
cd "$APP"
git checkout -q -- settings.json   # throws the new title away
