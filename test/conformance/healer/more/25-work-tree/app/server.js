const http = require('http');
const say = require('./größe/-rf it\'s.js');
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.end(say('Ann'));
}).listen(process.env.PORT, '127.0.0.1');
