// Package noise proves that what is no fault leads to nothing: a loaded machine, a page
// cache full of others' files, roles and whole trees that stand still and go on, a service
// that is slow to start, a clock that is set. Real services are asked by HTTP, TCP and commands all the while,
// their logs and what they use are watched, and a healer is there for one of them. At the
// end none was restarted or repaired, and all are the processes that they were; then one
// of them really hangs, and that is seen.
//
// Rounds go on for NOISE_MINUTES (default: one short round). make noise MINUTES=60 sets it.
//
// The machine's clock is never set: a test that does sets it for all. That of the daemon's
// roles is another one, see wallClock.
package noise
