#!/bin/bash
if [ "$(cat /app/errors)" = 3 ] && [ "$PWD" = /app ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
