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
// "tend --help" lists the exit statuses and the environment, and "tend help VERB"
// describes a command. With --json, stdout has only JSON values, and stderr has JSON
// too: {"error", "code", "status"}, or {"notice"} for messages that are not errors. A
// command without a JSON form says so and exits with 2.
//
// This is the only package of the module that reads flags and environment.
package cli
