package healer

import (
	"fmt"
	"time"
)

const (
	day = 24 * time.Hour
	// inRow is how many episodes may follow each other with less than calm between
	// them: a repair that does not last is none.
	inRow = 4
	calm  = 5 * time.Minute
)

// Breaker prevents endless repairs. It is plain data.
type Breaker struct {
	// Broken: no repair begins until a person requests one, a file changes or the service
	// recovers by itself. Why and Since say the reason and the time.
	Broken bool      `json:"broken,omitempty"`
	Why    string    `json:"why,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun has the start times of the episodes of the last day, oldest first; Ended is the
	// end of the newest one.
	Begun []time.Time `json:"begun,omitempty"`
	Ended time.Time   `json:"ended,omitzero"`
	// Row counts episodes that followed each other closely.
	Row int `json:"row,omitempty"`
	// Declined is the episode whose repair a person took back, and At the time: the same
	// repair is not repeated automatically within a day.
	Declined   string    `json:"declined,omitempty"`
	DeclinedAt time.Time `json:"declined_at,omitzero"`
}

// Allows returns why an episode may not begin now; "": it may. asked: a person requested
// it; then only the daily bound applies.
func (b *Breaker) Allows(at time.Time, perDay int, asked bool) string {
	n := 0
	for _, t := range b.Begun {
		if at.Sub(t) < day {
			n++
		}
	}
	switch {
	case n >= perDay:
		return fmt.Sprintf("%d episodes have begun within a day, and healer.per_day allows %d", n, perDay)
	case asked:
		return ""
	case b.Declined != "" && at.Sub(b.DeclinedAt) < day:
		return "its repair " + b.Declined + " was taken back, and so is not made again by itself"
	case b.Broken:
		return "it is broken, and nothing has changed since: " + b.Why
	case b.Row >= inRow && at.Sub(b.Ended) < calm:
		return fmt.Sprintf("it was repaired %d times in a row, and no repair has lasted %v", b.Row, calm)
	}
	return ""
}

// Begin counts an episode.
func (b *Breaker) Begin(at time.Time) {
	if b.Row++; at.Sub(b.Ended) >= calm {
		b.Row = 1
	}
	for len(b.Begun) > 0 && at.Sub(b.Begun[0]) >= day {
		b.Begun = b.Begun[1:]
	}
	b.Begun = append(b.Begun, at)
	b.Broken, b.Why, b.Since, b.Declined = false, "", time.Time{}, ""
}

// Decline records that a person took back the repair of an episode.
func (b *Breaker) Decline(at time.Time, episode string) { b.Declined, b.DeclinedAt = episode, at }

// End records the end of an episode.
func (b *Breaker) End(at time.Time, st Status, why string) {
	b.Ended = at
	if st == Broken {
		b.Break(at, why)
	}
}

// Break opens the breaker: no repair begins any more.
func (b *Breaker) Break(at time.Time, why string) { b.Broken, b.Why, b.Since = true, why, at }

// Rearm lets the next fault open an episode again. well: the service is well. If it is not,
// the next episode counts together with those before it, because the service itself may
// have changed the file.
func (b *Breaker) Rearm(well bool) {
	if b.Broken, b.Why, b.Since, b.Declined = false, "", (time.Time{}), ""; well {
		b.Row = 0
	}
}
