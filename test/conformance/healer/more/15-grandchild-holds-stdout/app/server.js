'use strict';
const { spawn } = require('child_process');
const http = require('http');
console.log('Starting watcher dev server');
// A helper that inherits the output, and outlives its parent.
spawn('sleep', ['120'], { stdio: 'inherit', detached: true }).unref();
const { greet } = require('./lib/greet');
const port = Number(process.env.PORT || 4111);
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.end(greet());
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
