// Package run keeps declared services running: it carries out what package supervisor
// decides over a process.Manager, and tells it what happens.
//
// What is decided is stored before it is done, in a file for each service:
//
//	DIR/NAME.json    declaration, state, boot, and the random part of process IDs (0600)
//	DIR/NAME.files   what its watched files were, as a hash (0600)
//
// A run is the process with the ID svc-RANDOM-NUMBER. To start an ID twice starts it
// once. So whoever goes on from the files, after a death at any moment, finds each
// process again or starts it for the first time; none is restarted for it and none is
// doubled. The end of Run ends no service.
//
// NAME.files is there while all changes of the files have been told. A supervisor that finds
// other files than that has the newest run restarted, if that began before it; what changes
// while it looks is of the same change. The file is removed before a change is told, so that no
// death restarts a service twice.
//
// A hook is a process, too, with the ID of its run and its own name behind it. So each
// hook of a run starts once, whoever dies; it goes on meanwhile, and its end is found.
//
// A service with a sandbox starts there: its runs, its hooks and the commands of its
// probes, whose connections lead to the sandbox's ports. The processes are found by their
// IDs as all others are, so what is done to them needs no sandbox that answers. It is
// looked at each second while the service is wanted, and before an exit, a failed start
// or a failed probe is told: what its sandbox does to a service is told first, and so it
// is no failure. A sandbox that has ended and that nobody has stopped is started.
//
// The listening sockets of a service are held by a process, too (package held), with the ID
// svc-RANDOM-sockets. It lives while the service runs or will soon; one that belongs to no
// service any more is ended by whoever goes on from the files.
//
// One goroutine owns the state. Effects of one service are carried out one after the
// other by a goroutine of that service; probes and waits have goroutines of their own,
// which end with their run.
//
// When all of tend ends, it ends the processes first. Exits for that cause are left to
// the supervisor after it, which starts again what was wanted. A service that ends by
// itself when it is asked to looks like any other exit: Config.InShutdown tells them
// apart, now and for the supervisor after this one.
package run
