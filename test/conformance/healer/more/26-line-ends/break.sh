#!/bin/bash
set -eu
cd "$APP"
rm prices.csv
