const http = require('http');
const { greet } = require('./lib/greet');

const problem = () => (greet('Ann') === 'Hello, Ann' ? null : 'greetings are wrong');

http.createServer((req, res) => {
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  const why = problem();
  if (why) {
    res.statusCode = 503;
    return res.end(why);
  }
  if (req.url === '/health') return res.end('{"ok":true}');
  res.end(greet('Ann'));
}).listen(process.env.PORT, '127.0.0.1');
