// Package noise proves that what is no fault leads to nothing: a loaded machine, a page
// cache full of others' files, roles and whole trees that stand still and go on, a service
// that is slow to start. Real services are asked by HTTP, TCP and commands all the while,
// their logs and what they use are watched, and a healer is there for one of them. At the
// end none was restarted or repaired, and all are the processes that they were; then one
// of them really hangs, and that is seen.
//
// Rounds go on for NOISE_MINUTES (default: one short round). make noise MINUTES=60 sets it.
//
// Jumps of the clock of the day are not among it, since setting that would set it for the
// whole machine. Nothing here is measured by it; that time which stood still is no failure
// is a test of package supervisor.
package noise
