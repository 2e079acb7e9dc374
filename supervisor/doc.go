// Package supervisor decides what becomes of services: when each is started, asked how
// it is, ended and started again. It does nothing itself. [Step] takes the state of one
// service and one event, and returns the next state and what is to be done; [Set] does
// so for services that depend on each other. Nothing here reads a clock, starts a
// goroutine or keeps a reference: the caller says when an event happened, carries out
// the effects, and calls again at [State.Deadline]. A State is plain data. It is stored
// as JSON before its effects are carried out, so that another process goes on from it.
//
// # The phases of a service
//
//	Idle       nobody wants it to run
//	Waiting    for what it depends on, for its time, or for its sandbox
//	Starting   its hook runs, or it was asked to start, and it is not known yet whether it has
//	Running    it runs; it is Ready when its probes say so
//	Stopping   it was asked to end, and has until the deadline; or a hook before or after runs
//	Killing    what is left of its tree is being killed
//	Pausing    it will be started again at the deadline
//	Completed  it ended with success, and its policy leaves it so
//	Failed     it is not started again by itself, or only at the deadline
//
// # What always holds
//
//   - A start is numbered (Run). There is never a second one while anything of the
//     first may live: a start follows the news that the tree of the one before is gone.
//     If it is not known whether a start succeeded, it is repeated with the same number,
//     and the caller gives each number one process ID. So it starts once.
//   - A run that tend did not start (Adopted) is looked for only where somebody asks for the
//     service, and never after tend has started one: what follows it is tend's own.
//   - What nobody wants is not started. Events about an earlier Run change nothing.
//   - At most Max restarts are made within a window of time, however long it ran in
//     between. What comes beyond is a failure that is reported, not another start.
//   - Time in which nothing could be done is no failure. If an event comes long after
//     the deadline before it, then supervisor, service or machine stood still: all
//     deadlines move, and the answers of probes that were on their way do not count.
//   - What its sandbox does to a service is no failure of it either: while that is paused
//     the service is asked nothing and its deadlines wait; what ended with it is started
//     again when it is there.
package supervisor
