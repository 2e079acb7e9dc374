// Package healing is the part of the server that has services repaired. It decides nothing
// about a repair and changes no file of a project: it is told what is seen of services,
// opens an episode when a restart is not enough (package healer says when), has a worker do
// it (package healer/work), and says what becomes of it: in the API, and to a URL.
//
// A worker is a process of tend with a fixed ID, so that it starts once and outlives every
// death of a role. It is followed again by the next server. One that has died is followed
// by another, which reads the journal and goes on or rolls back.
//
// # Files in the directory
//
//	declared.json         whom the healer is for, and the keys of model and report (0600)
//	state.json            the breaker, and the episode that is under way
//	report.json           the newest status, until the URL has taken it
//	episodes/ID/          order.json, journal, inbox, transcript, diff: see package healer/work
//	chats/ID/             order.json, journal, words: see packages healer/chat and healer/work
//
// A turn of a chat is worked on in the same way. At most one of a service is there.
//
// At most one episode is under way, and the newest 50 are kept. What an older one
// has left in the user's repository to take something back by hand goes with it.
package healing
