#!/bin/bash
set -eu
rm "$APP/lib/greet.js"
