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
	// atOnce bounds the notices that are taken in a row before a burst is told: as many
	// as the kernel keeps by default.
	atOnce = 16 << 10
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
}

func newBurst(delay time.Duration) *burst {
	b := &burst{delay: delay, quiet: time.NewTimer(0)}
	b.quiet.Stop()
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
	b.arm()
}

func (b *burst) arm() {
	now := time.Now()
	wait := max(0, min(b.delay, longest-now.Sub(b.since)))
	b.due = now.Add(wait)
	b.quiet.Reset(wait)
}

// settle is for when quiet has received. It has pending take the notices that are there
// already, and returns what has changed first if none of them was a change, and begins
// the next burst; "": the burst goes on. Time in which the process stood still is not
// quiet: it does not count.
func (b *burst) settle(pending func() error) (first string, err error) {
	if late := time.Since(b.due); late > lateBy && b.stood < mostLate {
		b.stood++
		b.since = b.since.Add(late)
		b.arm()
		return "", nil
	}
	before := b.notes
	if err := pending(); err != nil || b.notes != before {
		return "", err
	}
	return b.over(), nil
}

// over returns what has changed first, and begins the next burst.
func (b *burst) over() (first string) {
	first, b.first, b.stood = b.first, "", 0
	return first
}
