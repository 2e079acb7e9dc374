'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const settings = JSON.parse(fs.readFileSync(path.join(__dirname, 'settings.json'), 'utf8'));
const port = Number(process.env.PORT || 4111) + settings.portOffset;
console.log('Starting shop dev server');
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  if (req.url === '/title') return res.end(settings.title);
  res.statusCode = 404;
  res.end();
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
