package work

import (
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
)

// An episode has its time by a clock that nobody sets, whichever of its workers asks. Over a
// boot only the other one is left.
func TestTheTimeOfAnEpisodeIsThatOfNoClockThatIsSet(t *testing.T) {
	const wall = 10 * time.Minute
	opened := time.Now()
	for name, c := range map[string]struct {
		opened time.Time
		clock  time.Duration // of the first worker, 5 minutes before
		boot   string
		want   time.Duration
	}{
		"as it should be":            {opened.Add(-5 * time.Minute), time.Hour, "b", 5 * time.Minute},
		"the clock was set ahead":    {opened.Add(-65 * time.Minute), time.Hour, "b", 5 * time.Minute},
		"the clock was set back":     {opened.Add(55 * time.Minute), time.Hour, "b", 5 * time.Minute},
		"another boot":               {opened.Add(-3 * time.Minute), 9 * time.Hour, "a", 7 * time.Minute},
		"another boot, and set back": {opened.Add(time.Hour), 9 * time.Hour, "a", wall},
		"a former version":           {opened.Add(-3 * time.Minute), 0, "", 7 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := &healer.State{Opened: c.opened, Clock: c.clock, Boot: c.boot}
			if got := timeLeft(s, wall, 65*time.Minute, "b"); got.Round(time.Second) != c.want {
				t.Errorf("%v are left; want %v", got, c.want)
			}
		})
	}
}
