#!/bin/bash
set -eu
cd "$APP"
printf "not a database at all, but what the disk has made of it" | dd of=app.db conv=notrunc 2>/dev/null
