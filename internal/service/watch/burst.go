package watch

import "time"

const (
	// longest is how long changes may follow each other until they are told.
	longest = 10 * time.Second
	// lateBy is how late the end of a delay may come and still say that nothing has
	// changed. Beyond, the process stood still, and what has changed meanwhile may not
	// have been heard of yet.
	lateBy = 10 * time.Millisecond
	// mostLate is how many ends in one burst may come late. A machine that has no time for
	// the process is late each time.
	mostLate = 10
)

// burst makes one of changes that follow each other closely.
type burst struct {
	delay time.Duration
	quiet *time.Timer // receives once nothing more has changed for the delay; then call settle
	first string      // what has changed first; "": nothing
	since time.Time
	due   time.Time // when quiet should receive
	notes int       // of all changes
	stood int       // how many ends of this burst came late

	tell Tell
	sum  func() *Sum
	// What the files are is found out after a delay, and is known after another one in which
	// nothing has changed: so no change is in it that was not told.
	stale bool // it is to be found out
	next  *Sum // it was found out
	void  bool // Known has nothing
}

// newBurst begins with what the files are.
func newBurst(delay time.Duration, tell Tell, sum func() *Sum) *burst {
	b := &burst{delay: delay, quiet: time.NewTimer(0), tell: tell, sum: sum}
	b.quiet.Stop()
	b.renew()
	return b
}

// note adds a change; "" is none.
func (b *burst) note(name string) {
	if name == "" {
		return
	}
	if b.notes++; b.first == "" {
		b.first, b.since = name, time.Now()
	}
	b.next = nil
	b.arm()
}

// touch is for something that is no change, and yet in a Sum: a time.
func (b *burst) touch() {
	if b.tell.Known == nil || b.first != "" {
		return
	}
	b.notes++
	if !b.void {
		b.void = true
		b.tell.Known(nil)
	}
	b.renew()
}

// renew has it found out what the files are.
func (b *burst) renew() {
	if b.tell.Known != nil {
		b.stale, b.next, b.since, b.stood = true, nil, time.Now(), 0
		b.arm()
	}
}

func (b *burst) arm() {
	now := time.Now()
	wait := max(0, min(b.delay, longest-now.Sub(b.since)))
	b.due = now.Add(wait)
	b.quiet.Reset(wait)
}

// settle is for when quiet has received. It has pending take the notices that are there
// already, and tells what has changed first if none of them was a change. Time in which the
// process stood still is not quiet: it does not count.
func (b *burst) settle(pending func() error) error {
	if late := time.Since(b.due); late > lateBy && b.stood < mostLate {
		b.stood++
		b.since = b.since.Add(late)
		b.arm()
		return nil
	}
	before := b.notes
	if err := pending(); err != nil || b.notes != before {
		return err
	}
	switch {
	case b.first != "":
		b.over()
	case b.stale:
		b.stale, b.next, b.since = false, b.sum(), time.Now()
		b.arm()
	case b.next != nil:
		b.tell.Known(b.next)
		b.next, b.void = nil, false
	}
	return nil
}

// over tells what has changed first, if anything has, and begins the next burst.
func (b *burst) over() {
	if b.first == "" {
		return
	}
	first := b.first
	b.first, b.stood, b.void = "", 0, true
	b.tell.Changed(first)
	b.renew()
}
