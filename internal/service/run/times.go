package run

import "time"

// A timetable says when the times of a schedule come, by a clock that somebody may set. A
// clock that is set ahead brings the times that it passes over as one. What came before it was
// set back does not come again, unless all would stand still for it: if it was set back by as
// much as lies between two times, or more, the schedule goes by the clock as it is then.
type timetable struct {
	next func(time.Time) time.Time // the first time of the schedule after one; zero: none
	due  time.Time                 // what comes next; zero: nothing
	told time.Time                 // what came last; zero: nothing has

	// The last look: the clock, and how long something had gone on that nobody sets.
	wall time.Time
	gone time.Duration
}

// clockSlack is by how much the clock may be slower than what nobody sets.
const clockSlack = time.Second

// advance takes the clock, and returns the time of the schedule that has come; zero: none has.
func (t *timetable) advance(wall time.Time, gone time.Duration) (come time.Time) {
	wall = wall.Round(0) // its reading alone
	back := t.wall.Add(gone - t.gone).Sub(wall)
	switch {
	case t.wall.IsZero():
		t.due = t.next(wall)
	case back > clockSlack:
		t.due = t.next(wall)
		if t.told.IsZero() || t.due.IsZero() || t.due.After(t.told) {
			break
		}
		if after := t.next(t.told); !after.IsZero() && after.Sub(t.told) > back {
			t.due = after
		}
	}
	t.wall, t.gone = wall, gone
	if t.due.IsZero() || wall.Before(t.due) {
		return time.Time{}
	}
	t.told = t.due
	t.due = t.next(wall)
	return t.told
}
