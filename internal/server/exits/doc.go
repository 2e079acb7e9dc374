// Package exits is the part of the server that carries out the actions requested for
// the end of a process: a command, a message to a URL, or both. The requests are labels
// of the process, so they are journaled with it before it runs:
//
//	tend.on-exit      a line for the shell. It runs as the user of the process, in its
//	                  directory and environment, as a process of its own with the ID of
//	                  the process and "-on-exit", and with TEND_EXIT_* set (see facts)
//	tend.on-exit-url  http or https; it is sent the same facts as JSON
//	tend.on-exit-pin  "1": the process stays pinned after that
//
// A caller that sets them must also pin the process: a pinned process is not removed
// before its actions are done. Then the part unpins it. Removing the process cancels
// pending actions.
//
// # At least once
//
// A completed action is recorded on the disk afterwards: a file ID.command or ID.url in
// the part's directory. If the server dies in between, the next one repeats the action:
// the command has its own process ID and so starts once while that process is known,
// and a message has the same Webhook-Id as before. A message is retried for 24 hours.
//
// Processes in sandboxes (the label tend.sandbox) are ignored: nothing that a sandbox
// requests runs, or is sent, from outside of it.
package exits
