#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want / 1
exit 0
