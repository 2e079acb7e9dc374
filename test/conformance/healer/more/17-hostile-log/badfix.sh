#!/bin/bash
set -eu
cd "$APP"
printf "exports.total = () => 0;\n" > total.js
