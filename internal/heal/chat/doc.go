// Package chat is what is known of a conversation between a person and a model about a
// service: its journal, and what follows from it.
//
// # The journal
//
// A file of JSON lines, numbered from 1. The server writes what the person does, and the
// worker what becomes of it, each under the lock of the journal, and on the disk before what
// it leads to is done. A last line that is cut short was never acted upon, and is removed.
// A [Journal] makes the [State] from the lines, with the messages of the model as they are
// sent again; so another worker goes on from the file alone.
//
// # A turn
//
//	said      the person says something: a turn begins
//	began     a worker works on it, from here on
//	reply     the model has answered, with calls or without
//	call      a call is being made
//	question  it needs a person first: the worker ends
//	answer    the person allows it, or does not: another worker goes on
//	again     the call that was allowed is being made
//	result    what became of the call
//	told      what tend says to the model
//	note      what people are told
//	stopped   the person wants the turn to end
//	end       it has ended
//	back      what a turn has changed was taken back
//
// A call that changes something, was begun, and has no result when a worker begins, is never
// made a second time.
//
// # What a turn has changed
//
// [Turn] is what it can be taken back by. The worker adds to it what each call has changed, before
// it writes the result, and the server removes it once it was taken back.
package chat
