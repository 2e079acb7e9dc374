#!/bin/bash
set -eu
# a program of the user, of another project, has the port by now, and says that it is well
mkdir -p "$STATE"
cat > "$STATE/other.js" <<'J'
require('http').createServer((req, res) => res.end(req.url === '/whoami' ? JSON.stringify({ pid: process.pid }) : '{"ok":true}')).listen(Number(process.env.PORT), '127.0.0.1');
J
cd "$STATE"
setsid nohup node other.js >/dev/null 2>&1 </dev/null &
echo $! > "$STATE/impostor.pid"
for i in $(seq 100); do curl -s -o /dev/null "http://127.0.0.1:$PORT/health" && exit 0; sleep 0.1; done
exit 1
