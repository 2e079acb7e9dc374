package driver

import (
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// EventKind says what has become of a sandbox.
type EventKind string

const (
	EventCreated   EventKind = "created"
	EventUpdated   EventKind = "updated" // its deadline or its network
	EventPaused    EventKind = "paused"  // or stopped: it can be resumed
	EventResumed   EventKind = "resumed"
	EventDestroyed EventKind = "destroyed"
	EventSnapshot  EventKind = "snapshot" // one was made of it
)

// Why a sandbox was destroyed.
const (
	DestroyedByRequest = "request"
	DestroyedAtTime    = "timeout"
	// DestroyedAgain: a server before this one has begun it.
	DestroyedAgain = "unknown"
)

// Event is one moment in the life of a sandbox. A server that dies in that moment may leave it
// out; an EventDestroyed may come twice then.
type Event struct {
	ID   string // a UUID
	Kind EventKind
	Time time.Time
	// Info is what the sandbox was then.
	Info Info
	// Reason of EventDestroyed.
	Reason string
	// Deadline and Network: what an EventUpdated is about.
	Deadline, Network bool
}

// Tell is told of each event in the order of one sandbox, while locks are held: it returns at
// once, and calls nothing of the driver. nil: nobody is told.
type Tell func(Event)

// Of tells of an event now.
func (t Tell) Of(kind EventKind, info Info, more func(*Event)) {
	if t == nil {
		return
	}
	e := Event{ID: string(container.NewUUID()), Kind: kind, Time: time.Now().UTC(), Info: info}
	if more != nil {
		more(&e)
	}
	t(e)
}
