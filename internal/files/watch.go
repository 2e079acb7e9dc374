package files

import "github.com/tend-run/tend/internal/lib/budget"

// Op is what happened to a path.
type Op uint8

const (
	OpCreate Op = iota + 1
	OpWrite
	OpRemove
	OpRename // the old name of what was renamed; the new one is an OpCreate
	OpChmod  // mode, owner, times or attributes
)

var opNames = [...]string{"", "CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "UNKNOWN"
}

// Event is one change.
type Event struct {
	// Name is relative to the watched directory; "." is the directory itself.
	Name string
	Op   Op
	// Dir: what was created is a directory.
	Dir bool
	// Entry is set if asked for, and if the path was still there when the
	// event was seen. Removed and renamed paths have none: another file may
	// have taken the name.
	Entry *Entry
}

// size is what an event takes in memory, about, in bytes.
func (ev *Event) size() int {
	n := 64 + len(ev.Name)
	if ev.Entry != nil {
		n += ev.Entry.size()
	}
	return n
}

// size is what an entry takes in memory, about, in bytes.
func (e *Entry) size() int {
	n := 256 + len(e.Name) + len(e.Path) + len(e.Owner) + len(e.Group) + len(e.Target)
	for k, v := range e.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// WatchOptions say what a watch reports.
type WatchOptions struct {
	// Recursive watches all directories below, new ones too.
	Recursive bool
	// IncludeEntry sets Event.Entry.
	IncludeEntry bool
	// AllowNetwork watches network file systems also, where only changes made
	// on this machine are reported.
	AllowNetwork bool
	// Queue is the most events kept for the reader; 0 means 10,000. They have at most 4 MiB
	// of names, too. With more, ErrOverflow.
	Queue int

	// Held is charged for the events that are kept for the reader, until it takes the next
	// ones, and for the directories of a recursive watch. Close gives all of it back. Where
	// it has no room for more, ErrOverflow. Nil: nothing is charged.
	Held *budget.Charge

	// What follows is for a recursive watch.

	// Follow reports whether a directory is watched, by its name with slashes, relative to
	// the watched one; if it is not, everything below it is not watched either. Nil: all
	// are.
	Follow func(name string) bool
	// Found reports existing entries as created at the beginning.
	Found bool
	// MaxDirs is the most directories that are watched; 0 means 100,000. With more,
	// ErrWatchLimit.
	MaxDirs int
}

// Watcher reports the changes in a directory. Close it when done.
type Watcher interface {
	// Root is the directory.
	Root() string
	// Ready has a value when there may be something to take.
	Ready() <-chan struct{}
	// Take returns the events since the last call. An error, after the events
	// before it, says why there will be no more.
	Take() ([]Event, error)
	Close() error
}
