// Package exits is the part of the server that carries out what was asked for at the end
// of a process: a command, a message to a URL, or both. They are labels of the process,
// so they are journaled with it before it runs:
//
//	tend.on-exit      a line for the shell. It runs as the user of the process, in its
//	                  directory and environment, as a process of its own with the ID of
//	                  the process and "-on-exit", and with TEND_EXIT_* set (see facts)
//	tend.on-exit-url  http or https; it is sent the same facts as JSON
//	tend.on-exit-pin  "1": the process stays pinned after that
//
// Who sets them pins the process, too: what is pinned is not forgotten before its
// labels are carried out. The part unpins it then. Removing the process takes back what
// was not done yet.
//
// # At least once
//
// What was done is written to the disk after it was: a file ID.command or ID.url in the
// part's directory. A server that dies in between is followed by one that does it again:
// the command has an ID of its own and so is started once while that process is known,
// and a message has the same Webhook-Id as before. A message is tried for 24 hours.
//
// Processes in sandboxes (the label tend.sandbox) are left alone: nothing that a sandbox
// says runs, or is sent, from outside of it.
package exits
