// Package noise proves that what is no fault leads to nothing: a loaded machine, a page
// cache full of others' files, roles and whole trees that stand still and go on, a service
// that is slow to start. Real services are asked by HTTP, TCP and commands all the while,
// their logs and what they use are watched, and a healer is there for one of them. At the
// end none was restarted or repaired, and all are the processes that they were; then one
// of them really hangs, and that is seen.
//
// Rounds go on for NOISE_MINUTES (default: one short round). make noise MINUTES=60 sets it.
//
// The wall clock does not jump here: a test that sets it sets it for the whole machine.
// Nothing is measured by that clock. Package supervisor tests that time in which the machine
// stood still is no failure.
package noise
