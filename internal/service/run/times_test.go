package run

import (
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/service/config"
)

// A clock is set while a schedule runs: its times are neither left out nor told twice.
func TestTheTimesOfAScheduleByAClockThatIsSet(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2026, 3, 10, 11, 0, 0, 0, time.UTC)
	type set struct {
		at time.Duration // since the start, by what nobody sets
		by time.Duration
	}
	for name, c := range map[string]struct {
		cron string
		long time.Duration
		sets []set
		want []time.Duration // of each that is told, since the start by what nobody sets
	}{
		"daily, not set":            {"0 12 * * *", 2 * day, nil, []time.Duration{time.Hour, 25 * time.Hour}},
		"daily, set back after it":  {"0 12 * * *", 2 * day, []set{{75 * time.Minute, -time.Hour}}, []time.Duration{time.Hour, 26 * time.Hour}},
		"daily, set back before it": {"0 12 * * *", day, []set{{30 * time.Minute, -time.Hour}}, []time.Duration{2 * time.Hour}},
		"daily, set ahead over it":  {"0 12 * * *", 25 * time.Hour, []set{{30 * time.Minute, time.Hour}}, []time.Duration{30 * time.Minute, 24 * time.Hour}},
		"daily, ahead over it and back": {"0 12 * * *", 26 * time.Hour, []set{{30 * time.Minute, time.Hour}, {40 * time.Minute, -time.Hour}},
			[]time.Duration{30 * time.Minute, 25 * time.Hour}},
		"daily, back and ahead again": {"0 12 * * *", 26 * time.Hour, []set{{75 * time.Minute, -time.Hour}, {80 * time.Minute, time.Hour}},
			[]time.Duration{time.Hour, 25 * time.Hour}},
		"daily, set back by years": {"0 12 * * *", 2 * day, []set{{75 * time.Minute, -1000 * day}}, []time.Duration{time.Hour, 25 * time.Hour}},
		"hourly, set back by one":  {"10 * * * *", 4 * time.Hour, []set{{75 * time.Minute, -time.Hour}}, []time.Duration{10 * time.Minute, 70 * time.Minute, 130 * time.Minute, 190 * time.Minute}},
		"hourly, set back by less": {"10 * * * *", 4 * time.Hour, []set{{75 * time.Minute, -20 * time.Minute}}, []time.Duration{10 * time.Minute, 70 * time.Minute, 150 * time.Minute, 210 * time.Minute}},
		"each minute, set back by one hour": {"* * * * *", 6 * time.Minute, []set{{3*time.Minute + 30*time.Second, -time.Hour}},
			[]time.Duration{1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute}},
		"each minute, set back by seconds": {"* * * * *", 5 * time.Minute, []set{{2*time.Minute + 5*time.Second, -10 * time.Second}},
			[]time.Duration{1 * time.Minute, 2 * time.Minute, 3*time.Minute + 10*time.Second, 4*time.Minute + 10*time.Second}},
		"each ten seconds, set back": {"@every 10s", 45 * time.Second, []set{{25 * time.Second, -time.Hour}},
			[]time.Duration{10 * time.Second, 20 * time.Second, 35 * time.Second}},
		"slowed a little": {"0 12 * * *", 2 * time.Hour, []set{{61 * time.Minute, -500 * time.Millisecond}}, []time.Duration{time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			var s config.Schedule
			s.Cron, s.Zone = config.Cron(c.cron), "UTC"
			table := timetable{next: s.Next}
			var got []time.Duration
			wall := start
			for gone := time.Duration(0); gone < c.long; gone += time.Second {
				for _, set := range c.sets {
					if set.at == gone {
						wall = wall.Add(set.by)
					}
				}
				if !table.advance(wall, gone).IsZero() {
					got = append(got, gone)
				}
				wall = wall.Add(time.Second)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("told after %v; want %v", got, c.want)
			}
		})
	}
}
