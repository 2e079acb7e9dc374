#!/bin/bash
set -eu
cd "$APP"
# serves without the routes
sed -i 's/^const made = .*/const made = { routes: {} };/; s/^if (made.of .*/if (false) {/' server.js
