#!/bin/bash
for _ in $(seq 100); do
	if python3 -c 'import urllib.request as r; assert b"served" in r.urlopen("http://127.0.0.1:8000/").read()' 2>/dev/null; then
		echo 1 >/logs/verifier/reward.txt
		exit
	fi
	sleep 0.1
done
echo 0 >/logs/verifier/reward.txt
