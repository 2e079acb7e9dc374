// Package work does the work of an episode: it is the worker, a process of its own that
// lives as long as a repair. It carries out what package healer decides, one thing after
// the other, and writes each into the journal before the next.
//
// It reaches the service, and starts commands, through the daemon's API, so that it goes on
// when the server is another one. It reaches the project through package project: in this
// process if the service has the user that the daemon has, else in one of the service's user,
// or inside its sandbox. What is done on behalf of a user has that user's rights.
//
// # Files in the directory of the episode
//
//	order.json       what is to be repaired, with the environment of the service (0600)
//	journal          see package healer
//	lock             is locked by the worker: there is one
//	inbox            what the server has to say to it
//	points/N/        the checkpoint of the N-th remedy, while it is open
//	transcript       what was said to a model and by it
//	diff             what was changed, secrets hidden
//	undo.json        what a repair has changed, and what that was before: one that was not
//	                 committed can be taken back by it (0600)
//	live.json        the same of a remedy of which it is not known yet whether it helps (0600)
//	taken-back       the ID of the episode that has taken this one back; the server writes it
//	attempt-N.diff   what the N-th remedy had changed, and was taken back
//
// # Chats
//
// [Chat] is the same for one turn of a chat, whose journal is that of package internal/heal/chat. Each
// call that changes something is between a checkpoint and its removal, by which its diff is
// known, and kept what the turn can be taken back by (turns/N.json). One that the guards refuse, and a person may
// allow, becomes a question; the process ends then, and the answer starts another.
//
// # Commands
//
// A command of a playbook is a process of tend of its own, with limits on memory, processes
// and time, and with the environment of the service, from which the keys of the healer are
// taken out. Its whole tree is killed when it has ended. It runs where the service does: what is run
// is what the playbook says, and never what a log or a model does. What a model
// does happens in a view (package internal/heal/view): what is admitted of it, by the rules of package
// guard, is a set, which becomes the project's once the service is well on it there.
package work
