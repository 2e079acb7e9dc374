// Package supervisor decides when each service is started, probed, ended and restarted.
// It performs no actions itself. [Step] takes the state of one service and one event,
// and returns the next state and the effects to carry out; [Set] does this for services
// that depend on each other. The package reads no clock, starts no goroutine and keeps
// no references: the caller supplies the time of each event, carries out the effects,
// and calls again at [State.Deadline]. A State is plain data. The caller stores it as
// JSON before it carries out the effects, so that another process can continue from it.
//
// # The phases of a service
//
//	Idle       it is not wanted to run
//	Waiting    for its dependencies, for its time, or for its sandbox
//	Starting   its hook runs, or its start was requested and the result is not known yet
//	Running    it runs; it is Ready when its probes succeed
//	Stopping   it was asked to end, and has until the deadline; or a hook before or after runs
//	Killing    the rest of its tree is being killed
//	Pausing    it will be started again at the deadline
//	Completed  it ended with success, and its policy does not restart it
//	Failed     it is not restarted automatically, or only at the deadline
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
