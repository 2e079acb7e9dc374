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
//   - A start is numbered (Run). There is never a second run while any process of the
//     first may be alive: a start happens only after the report that the tree of the
//     previous run is gone. If it is unknown whether a start succeeded, it is repeated
//     with the same number, and the caller gives each number one process ID. So it
//     starts once.
//   - The supervisor looks for a run that tend did not start (Adopted) only when the
//     service is requested, and never after tend has started a run: all later runs are
//     tend's own.
//   - A service that is not wanted is not started. Events about an earlier Run change
//     nothing.
//   - At most Max restarts are made within a time window, however long each run lasted.
//     After that the service has failed, which is reported, and is not started again.
//   - Time in which nothing could run is not a failure. If an event comes long after
//     the deadline before it, then supervisor, service or machine was suspended: all
//     deadlines move, and results of probes that were running do not count.
//   - Changes of its sandbox are not failures of a service either: while the sandbox is
//     paused, the service is not probed and its deadlines wait; a service that ended
//     with its sandbox is started again when the sandbox is back.
package supervisor
