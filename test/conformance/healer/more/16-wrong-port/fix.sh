#!/bin/bash
set -eu
cd "$APP"
sed -i "s/\"portOffset\": 1/\"portOffset\": 0/" settings.json
