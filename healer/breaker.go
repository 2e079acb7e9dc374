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

// Breaker keeps the healer from trying for ever. It is plain data.
type Breaker struct {
	// Broken: nothing is tried until somebody wants it, a file changes or the service
	// recovers by itself. Why, and since when.
	Broken bool      `json:"broken,omitempty"`
	Why    string    `json:"why,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun are the times of the episodes of a day, oldest first, and Ended that of the
	// newest one's end.
	Begun []time.Time `json:"begun,omitempty"`
	Ended time.Time   `json:"ended,omitzero"`
	// Row is how many episodes have followed each other closely.
	Row int `json:"row,omitempty"`
	// Declined is the episode whose repair somebody has taken back, and At when: the same is
	// not made again by itself, within a day.
	Declined   string    `json:"declined,omitempty"`
	DeclinedAt time.Time `json:"declined_at,omitzero"`
}

// Allows returns why an episode may not begin now; "": it may. asked: somebody has asked
// for it, which only the bound of a day stands against.
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

// Decline takes that somebody has taken back the repair of an episode.
func (b *Breaker) Decline(at time.Time, episode string) { b.Declined, b.DeclinedAt = episode, at }

// End takes the end of an episode.
func (b *Breaker) End(at time.Time, st Status, why string) {
	b.Ended = at
	if st == Broken {
		b.Break(at, why)
	}
}

// Break makes it passive.
func (b *Breaker) Break(at time.Time, why string) { b.Broken, b.Why, b.Since = true, why, at }

// Rearm lets the next fault open an episode again. well: the service is; else the next
// episode counts with those before it, for it may be the service that changed a file.
func (b *Breaker) Rearm(well bool) {
	if b.Broken, b.Why, b.Since, b.Declined = false, "", (time.Time{}), ""; well {
		b.Row = 0
	}
}
