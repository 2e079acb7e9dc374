const http = require('http');
const { greet } = require('./lib/greet');

http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.end(greet('Ann'));
}).listen(process.env.PORT, '127.0.0.1');
