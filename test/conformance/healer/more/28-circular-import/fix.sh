#!/bin/bash
set -eu
cd "$APP"
sed -i '1,2d' shop/prices.py
