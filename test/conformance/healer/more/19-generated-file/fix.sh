#!/bin/bash
set -eu
cd "$APP"
node generate.js
