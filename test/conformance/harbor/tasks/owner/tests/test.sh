#!/bin/bash
if [ "$(stat -c '%U %a' "$SITE/who")" = 'web 644' ] && [ "$(cat "$SITE/who")" = web ] && [ "$(stat -c '%U %a' /opt/tools/greet)" = 'web 755' ]; then
	echo 1
else
	echo 0
fi >/logs/verifier/reward.txt
