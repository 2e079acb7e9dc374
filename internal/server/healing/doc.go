// Package healing is the part of the server that manages repairs of services. It makes
// no decisions about a repair and changes no file of a project. It receives notices
// about services, opens an episode when a restart is not enough (package healer decides
// when), starts a worker for it (package internal/heal/work), and reports the result in the
// API and to a URL.
//
// A worker is a process of tend with a fixed ID, so it starts once and survives the
// death of any role. The next server follows it again. If the worker dies, another one
// reads the journal and continues or rolls back.
//
// # Files in the directory
//
//	declared.json         whom the healer is for, and the keys of model and report (0600)
//	state.json            the breaker, and the episode that is under way
//	report.json           the newest status, until the URL has taken it
//	episodes/ID/          order.json, journal, inbox, transcript, diff: see package internal/heal/work
//	chats/ID/             order.json, journal, words: see packages internal/heal/chat and internal/heal/work
//
// A turn of a chat is handled in the same way. There is at most one for each service.
//
// At most one episode runs at a time, and the newest 50 are kept. When an older one is
// removed, so is the data for a manual rollback that it left in the user's repository.
package healing
