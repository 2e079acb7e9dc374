// Command tend runs processes for agents and people, and keeps them.
//
//	tend run -- npm run dev        start a process and follow it
//	tend run -d --name web -- …    start it and return
//	tend logs -f web               its output, from the first byte
//	tend attach web                its terminal
//	tend serve                     the daemon, in the foreground
//
// A command finds its daemon by --url or TEND_URL; without them it uses the
// daemon of the current user, on a unix socket, and "tend run" starts one if
// there is none.
//
// "tend --help" has the exit statuses and the environment, and "tend help VERB" what a
// verb does. With --json, stdout has JSON values and nothing else, and what is printed
// on stderr is JSON, too: {"error", "code", "status"}, or {"notice"} for what is no
// error. A verb that has no JSON form says so and ends with 2.
//
// This is the only package of the module that reads flags and environment.
package main
