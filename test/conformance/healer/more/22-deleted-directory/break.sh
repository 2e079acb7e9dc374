#!/bin/bash
set -eu
cd "$APP"
rm -r lib
