'use strict';
const http = require('http');
const feed = require('./lib/feed');

const port = Number(process.env.PORT || 4111);
console.log('Starting feed dev server');
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  if (req.url === '/count') return res.end(JSON.stringify({ n: feed.count() }));
  res.statusCode = 404;
  res.end();
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
feed.start();
