import http.server, json, os
import sqlite3
db = sqlite3.connect("app.db", check_same_thread=False)
db.execute("create table if not exists orders(x)")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            if self.path == "/whoami":
                body, code = json.dumps({"pid": os.getpid()}), 200
            elif self.path == "/health":
                pass
                body, code = '{"ok":true}', 200
            else:
                body, code = str(db.execute("select count(*) from orders").fetchone()[0]), 200
        except Exception as e:
            import traceback; traceback.print_exc()
            body, code = str(e), 500
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *a):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
