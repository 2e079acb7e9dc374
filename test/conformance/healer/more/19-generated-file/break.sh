#!/bin/bash
set -eu
cd "$APP"
# The user has added a route and not committed it; what is made of it was interrupted.
echo '/three third' >> routes.txt
printf '{"of":"' > generated/routes.json
touch "$STATE/added"
