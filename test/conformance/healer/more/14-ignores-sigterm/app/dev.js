'use strict';
const fs = require('fs');
const path = require('path');
const http = require('http');

const lock = path.join(__dirname, '.cache', 'bundle.lock');
const out = path.join(__dirname, '.cache', 'bundle.js');
fs.mkdirSync(path.dirname(lock), { recursive: true });

// Another bundler may be at work: wait until its lock goes. A lock older than 6 s at start is left over: take it.
function takeLock(then) {
  if (fs.existsSync(lock) && Date.now() - fs.statSync(lock).mtimeMs > 6000) fs.unlinkSync(lock);
  const wait = () => (fs.existsSync(lock) ? setTimeout(wait, 200) : (fs.writeFileSync(lock, String(process.pid)), then()));
  wait();
}

process.on('SIGTERM', () => console.log('Bundling... (not now)'));
console.log('Starting dev server');
console.log('Bundling...');
takeLock(() => {
  const parts = fs.readdirSync(path.join(__dirname, 'src')).sort().map((f) => fs.readFileSync(path.join(__dirname, 'src', f), 'utf8'));
  fs.writeFileSync(out, parts.join('\n'));
  fs.unlinkSync(lock);
  const { page } = require(out);
  const port = Number(process.env.PORT || 4111);
  http.createServer((req, res) => {
    if (req.url === '/health') return res.end('{"ok":true}');
    if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
    res.end(page());
  }).listen(port, '127.0.0.1', () => console.log(`Ready in ${Math.round(process.uptime() * 1000)} ms`));
});
