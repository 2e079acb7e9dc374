// Package page serves the page of tend at /ui/: its files, which the program
// carries inside (dist, built from packages/page), and the login.
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
//
// A request of the page to the API shows both: the cookie, and the proof in the
// header Tend-Page. The cookie alone is not enough. A browser sends it to
// every port of a host, so another server on this machine may see it; and it sends it
// with requests that other pages make. The proof is kept by origin, which a port is
// part of, and no other page can send its header.
//
// A session lasts for a week, outlives the server, and ends by logging out and when the
// server's token becomes another one. A code logs in once, within a minute; the
// server that made it must live. One that is made for it logs in to read alone: package
// server admits such a session to routes that say that they only read.
package page
