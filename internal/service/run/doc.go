// Package run keeps declared services running: it carries out the decisions of package
// supervisor with a process.Manager, and reports events to it.
//
// Each decision is stored before it is carried out, in a file for each service:
//
//	DIR/NAME.json    declaration, state, boot, and the random part of process IDs (0600)
//	DIR/NAME.files   what its watched files were, as a hash (0600)
//	DIR/NAME.log     how far log.file has its output, and what is written next (0600)
//
// A run is the process with the ID svc-RANDOM-NUMBER. Starting an ID twice starts it
// once. So the supervisor that continues from the files, after a death at any moment,
// finds each process again or starts it for the first time; none is restarted because
// of that, and none is doubled. The end of Run ends no service.
//
// NAME.files exists while all changes of the files have been reported. A supervisor
// that finds different files restarts the newest run, if that run started earlier than
// the supervisor; changes during this check count as the same change. The file is
// removed before a change is reported, so that no death restarts a service twice.
//
// A hook is also a process, with the ID of its run followed by its own name. So each
// hook of a run starts once, whichever role dies; it keeps running meanwhile, and its
// end is found.
//
// A service with a sandbox starts there: its runs, its hooks and the commands of its
// probes, whose connections lead to the sandbox's ports. The processes are found by
// their IDs like all others, so actions on them do not need a responding sandbox. The
// sandbox is checked each second while the service is wanted, and before an exit, a
// failed start or a failed probe is reported: a change of the sandbox is reported
// first, so it does not count as a failure. A sandbox that has ended without a stop
// request is started.
//
// A process also holds the listening sockets of a service (package sockets), with the ID
// svc-RANDOM-sockets. It lives while the service runs or will run soon; the supervisor
// that continues from the files ends a holder that belongs to no service any more.
//
// One goroutine owns the state. A goroutine of each service carries out its effects one
// after the other; probes and waits have their own goroutines, which end with their
// run.
//
// When all of tend ends, it ends the processes first. Exits with that cause are left to
// the next supervisor, which restarts the wanted services. If a service exits by itself
// after the request to end, this looks like any other exit: Config.InShutdown
// distinguishes them, now and for the next supervisor.
package run
