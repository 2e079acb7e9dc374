#!/bin/bash
set -eu
: > "$STATE/crash-once"
: > "$STATE/workers"
