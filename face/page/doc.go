// Package page serves the page of tend at /ui/: its files, which are embedded in the
// program (dist, built from packages/page), and the login.
//
// # Login
//
// While the server has no token the page needs no login: package server admits its
// own user, and face.Guard keeps foreign web pages out, as for the API. With a token:
//
//	POST /ui/session    with Authorization: Bearer <token>, or Tend-Code: <code>, and no
//	                    body: logs in. Sets a cookie, which scripts cannot read, and answers
//	                    {"proof": "…"}, which no other origin can read
//	GET /ui/session     {"needed": true, "in": false, "reads": false}: whether a login is
//	                    needed, whether this request has one, and whether that reads alone
//	DELETE /ui/session  logs out
//	DELETE /ui/readers  {"ended": 2}: with the token, or a login that does not only read:
//	                    ends all read-only logins, and makes their codes void
//
// A request of the page to the API carries both the cookie, and the proof in the header
// Tend-Page. The cookie alone is not enough. A browser sends it to every port of a
// host, so another server on this machine may see it; and it sends it with requests
// that other pages make. The browser stores the proof for one origin, which includes
// the port, and no other page can send its header. A server on another port can also set
// cookies for this one: the name of a login's cookie follows from its proof, so that
// nobody replaces it who has not seen it.
//
// A session lasts for a week, survives the server, and ends with a logout or when the
// server's token changes; its streams end with it, within seconds. A code logs in once, within a minute; the server that issued
// it must still be alive. A read-only code creates a read-only session: package server
// admits it only to routes that declare that they only read.
package page
