// Package page serves the page of tend at /ui/: its files, which are embedded in the
// program (dist, built from sdk/web), and the login.
//
// # Login
//
// While the server has no token the page needs no login: package server admits its
// own user, and protocol.Guard keeps foreign web pages out, as for the API. With a token:
//
//	POST /ui/session    with Authorization: Bearer <token>, or Tend-Code: <code>, and no
//	                    body: logs in. Sets a cookie, which scripts cannot read, and answers
//	                    {"key": "…", "tag": "…"}, which no other origin can read
//	GET /ui/session     {"needed": true, "in": false, "reads": false}: whether a login is
//	                    needed, whether this request has one, and whether that reads alone
//	DELETE /ui/session  logs out
//	DELETE /ui/readers  {"ended": 2}: with the token, or a login that does not only read:
//	                    ends all read-only logins, and makes their codes void
//
// A request of the page carries both the cookie, and a proof that the page has the key, in the
// header Tend-Page. The cookie alone is not enough. A browser sends it to every port of a
// host, so another server on this machine may see it; and it sends it with requests
// that other pages make. The browser stores the key for one origin, which includes
// the port, and no other page can send the header. The key itself is sent once, in the answer
// to the login: the browser signs with it, and gives it to no script, where it has WebCrypto.
//
// # Proofs
//
//	Tend-Page: <tag>.<run>.<count>.<body>.<mac>
//
//	tag    is in the name of the session's cookie
//	run    a random name of this server; another one, also after a restart, has another
//	count  a number that no other proof of the session for this run has
//	body   SHA-256 of the body in hexadecimal digits; of more than 1 MiB its length in decimal
//	       digits
//	mac    HMAC-SHA256 in hexadecimal digits, whose key is the text of the key, of these lines,
//	       with a line feed between two: tag, run, count, the method, the path with its query, body,
//	       and the values of the headers Tend-Sandbox, If-Match and If-None-Match
//
// So whoever answers on our port while we are away, and records what pages send, has nothing
// that we admit when we are back. An answer that refuses a proof says what the next must be for:
//
//	WWW-Authenticate: Tend-Page run="<run>", least="<a number that the count must be greater than>"
//
// GET /ui/session says so to everybody. The page then sends the request again: nothing was done
// for it. A session remembers 1,024 counts, and refuses those below them. A body is read as a whole,
// and compared, before the handler gets its first byte; one of more than 1 MiB must have
// the length that was signed, and is otherwise not known.
//
// A server on another port can also set cookies for this one: the name of a login's cookie
// has a tag that follows from its ID, so that nobody replaces it who has not seen it.
//
// A session lasts for a week, survives the server, and ends with a logout or when the
// server's token changes; its streams end with it, within seconds. A code logs in once, within a minute; the server that issued
// it must still be alive. A read-only code creates a read-only session: package server
// admits it only to routes that declare that they only read.
package page
