#!/bin/bash
set -eu
cd "$APP"
rm app.db
