// Command tend runs processes for agents and people, and keeps them.
//
//	tend run -- npm run dev        start a process and follow it
//	tend run -d --name web -- …    start it and go on
//	tend logs -f web               its output, from the first byte
//	tend attach web                its terminal
//	tend serve                     the daemon, in the foreground
//
// A command finds its daemon by --url or TEND_URL; without them it uses the
// daemon of the current user, on a unix socket, and "tend run" starts one if
// there is none.
//
// # Exit statuses
//
//	0    done
//	1    not done; the reason is on stderr
//	2    the command line is wrong
//	124  a timeout: of "run --timeout", or of "wait --timeout"
//	125  "run" could not reach or start a daemon, lost it for good, could not
//	     start the process (no such directory, user or limit), or could not
//	     print its output
//	126  "run": the program cannot be executed
//	127  "run": the program was not found
//	129  "run" and "attach": the terminal was closed; the process goes on
//
// "run", "attach" and "wait" end with the status of the process itself: its
// code, or 128+n if signal n ended it; "wait" for several with the greatest.
// "wait" that is interrupted ends with 130 or 143; to leave "logs -f", "events
// -f", "top" and "attach" by ctrl-c is no failure, and neither is it to leave by
// ctrl-]. "kill", "stop" and "rm -f" end with 1 if a process outlived the kill, or
// if one runs on that may belong to the killed one.
//
// With --json, stdout has JSON values and nothing else, and what is printed on
// stderr is JSON, too: {"error", "code", "status"}, or {"notice"} for what is no
// error. A verb that has no JSON form says so and ends with 2.
//
// # Environment
//
//	TEND_URL        the daemon: http://host:port or unix:///path
//	TEND_TOKEN      its token
//	TEND_STATE_DIR  the state directory of one's own daemon
//	NO_COLOR        no colour, whatever the terminal
//
// This is the only package of the module that reads flags and environment.
package main
