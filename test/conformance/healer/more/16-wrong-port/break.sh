#!/bin/bash
set -eu
cd "$APP"
# the user changed the title, which is right, and the port, which is not
printf '{\n  "title": "My Shop",\n  "portOffset": 1\n}\n' > settings.json
