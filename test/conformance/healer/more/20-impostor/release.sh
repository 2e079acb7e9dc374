#!/bin/bash
set -eu
kill "$(cat "$STATE/impostor.pid")"
