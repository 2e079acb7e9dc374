package spool

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tend-run/tend/process"
)

var now = time.Unix(1700000000, 0)

func stdout(base, end int64) []StreamUsage {
	return []StreamUsage{{Stream: process.Stdout, Base: base, End: end}}
}

func TestPlan(t *testing.T) {
	const mib = 1 << 20
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	both := []StreamUsage{{process.Stdout, 0, mib}, {process.Stderr, 0, 8 * mib}}
	for name, tc := range map[string]struct {
		budget int64
		ttl    time.Duration
		usage  []Usage
		want   []Action
	}{
		"nothing is done within the budget": {64 * mib, time.Hour, []Usage{{ID: "a", FinishedAt: ago(time.Minute), Streams: both}}, nil},
		"a process past its time goes though there is room": {64 * mib, time.Hour,
			[]Usage{{ID: "a", FinishedAt: ago(time.Hour)}, {ID: "b", FinishedAt: ago(time.Hour), TTL: 2 * time.Hour}, {ID: "c", FinishedAt: ago(time.Second), TTL: time.Second}},
			[]Action{{ID: "a", Remove: true}, {ID: "c", Remove: true}}},
		"no time limit is none": {64 * mib, 0, []Usage{{ID: "a", FinishedAt: ago(1e6 * time.Hour)}}, nil},
		"the output of the oldest finished one goes first, and no more than needed": {2 * mib, time.Hour,
			[]Usage{{ID: "new", FinishedAt: ago(1), Streams: stdout(0, mib)}, {ID: "old", FinishedAt: ago(9), Streams: stdout(0, mib)}},
			[]Action{{ID: "old", Free: true}}},
		"finished ones go before a live one is trimmed": {2 * mib, time.Hour,
			[]Usage{{ID: "live", Live: true, Streams: stdout(0, mib)}, {ID: "done", FinishedAt: ago(9), Streams: stdout(0, mib)}},
			[]Action{{ID: "done", Free: true}}},
		"the largest live stream is halved first": {12 * mib, time.Hour,
			[]Usage{{ID: "a", Live: true, Streams: stdout(2*mib, 8*mib)}, {ID: "b", Live: true, Streams: both}},
			[]Action{{ID: "b", Stream: process.Stderr, Before: 4 * mib}}},
		"a live stream with policy block is left": {0, time.Hour,
			[]Usage{{ID: "a", Live: true, Policy: process.Block, Streams: both}}, nil},
		"a finished process that is pinned is left, whatever its time and the budget, and counts": {3 * mib / 2, time.Hour,
			[]Usage{{ID: "kept", Pinned: true, FinishedAt: ago(2 * time.Hour), Streams: stdout(0, mib)}, {ID: "done", FinishedAt: ago(9), Streams: stdout(0, mib)}},
			[]Action{{ID: "done", Free: true}}},
		"a live process that is pinned is trimmed": {0, time.Hour, []Usage{{ID: "a", Live: true, Pinned: true, Streams: stdout(0, 8*mib)}},
			[]Action{{ID: "a", Stream: process.Stdout, Before: 4 * mib}}},
		"who has the most gives first, though others' is older": {4 * mib, time.Hour,
			[]Usage{{ID: "mine", Owner: "a", FinishedAt: ago(9), Streams: stdout(0, mib)}, {ID: "live", Owner: "b", Live: true, Streams: stdout(0, 8*mib)},
				{ID: "done", Owner: "b", FinishedAt: ago(1), Streams: stdout(0, mib)}},
			[]Action{{ID: "done", Free: true}, {ID: "live", Stream: process.Stdout, Before: 4 * mib}, {ID: "mine", Free: true}}},
		"an equal share is left alone": {6 * mib, time.Hour,
			[]Usage{{ID: "mine", Owner: "a", FinishedAt: ago(9), Streams: stdout(0, mib)}, {ID: "live", Owner: "b", Live: true, Streams: stdout(0, 8*mib)},
				{ID: "done", Owner: "b", FinishedAt: ago(1), Streams: stdout(0, mib)}},
			[]Action{{ID: "done", Free: true}, {ID: "live", Stream: process.Stdout, Before: 4 * mib}}},
		"what is smaller than two blocks is left": {0, time.Hour, []Usage{{ID: "a", Live: true, Streams: stdout(4096, 4096+8191)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(now, Bounds{Budget: tc.budget, TTL: tc.ttl}, tc.usage)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Facts outlive the output, and have bounds of their own.
func TestPlanKeepsFactsWithinTheirBounds(t *testing.T) {
	const block = BlockSize
	usage := []Usage{
		{ID: "a", FinishedAt: now.Add(-4), Freed: true, Disk: 2 * block},
		{ID: "b", FinishedAt: now.Add(-3), Freed: true, Disk: 2 * block},
		{ID: "c", FinishedAt: now.Add(-2), Spec: 100, Disk: 100 * block},
		{ID: "d", FinishedAt: now.Add(-1), Spec: 1 << 20, Disk: 300 * block},
	}
	for name, tc := range map[string]struct {
		b    Bounds
		want []Action
	}{
		"a budget that is spent takes output and large specs, and no facts": {Bounds{Budget: 1}, []Action{{ID: "c", Free: true}, {ID: "d", Free: true}}},
		"facts over their bound go, oldest first":                           {Bounds{Budget: 1 << 30, Facts: 6 * block}, []Action{{ID: "a", Remove: true}}},
		"and so do more processes than are allowed":                         {Bounds{Budget: 1 << 30, Processes: 1}, []Action{{ID: "a", Remove: true}, {ID: "b", Remove: true}, {ID: "c", Remove: true}}},
		"their time ends all the same":                                      {Bounds{Budget: 1, TTL: 3}, []Action{{ID: "a", Remove: true}, {ID: "b", Remove: true}, {ID: "c", Free: true}, {ID: "d", Free: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(now, tc.b, usage)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who has the most facts gives them first, though others' are older.
func TestPlanTakesFactsOfWhoHasTheMost(t *testing.T) {
	usage := []Usage{{ID: "mine", Owner: "a", FinishedAt: now.Add(-9), Freed: true, Disk: BlockSize}}
	for i := range 3 {
		usage = append(usage, Usage{ID: process.ID(fmt.Sprint(i)), Owner: "b", FinishedAt: now.Add(time.Duration(i - 5)), Freed: true, Disk: BlockSize})
	}
	want := []Action{{ID: "0", Remove: true}, {ID: "1", Remove: true}}
	for _, b := range []Bounds{{Budget: 1 << 30, Processes: 2}, {Budget: 1 << 30, Facts: 2 * BlockSize}} {
		if diff := cmp.Diff(want, Plan(now, b, usage)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", b, diff)
		}
	}
}

func TestAnyPlanKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var usage []Usage
		for i := range rapid.IntRange(0, 8).Draw(t, "processes") {
			u := Usage{
				ID: process.ID(fmt.Sprint(i)), Owner: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "owner"), Live: rapid.Bool().Draw(t, "live"), FinishedAt: now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "age"))),
				Pinned: rapid.Bool().Draw(t, "pinned"),
				TTL:    time.Duration(rapid.IntRange(0, 100).Draw(t, "ttl")),
				Policy: rapid.SampledFrom([]process.RetentionPolicy{process.DropOldest, process.Block}).Draw(t, "policy"),
			}
			for _, s := range outputs {
				base := BlockSize * rapid.Int64Range(0, 8).Draw(t, "base")
				u.Streams = append(u.Streams, StreamUsage{s, base, base + rapid.Int64Range(0, 1<<20).Draw(t, "kept")})
			}
			usage = append(usage, u)
		}
		budget, ttl := rapid.Int64Range(0, 4<<20).Draw(t, "budget"), 50*time.Nanosecond
		removed, freed, trimmed := map[process.ID]bool{}, map[process.ID]bool{}, map[string]int64{}
		for _, a := range Plan(now, Bounds{Budget: budget, TTL: ttl}, usage) {
			var u *Usage
			for i := range usage {
				if usage[i].ID == a.ID {
					u = &usage[i]
				}
			}
			if a.Remove {
				if u.Live || u.Pinned || removed[u.ID] {
					t.Fatalf("%+v is removed", u)
				}
				removed[u.ID] = true
				continue
			}
			if a.Free {
				if u.Live || u.Pinned || removed[u.ID] || freed[u.ID] {
					t.Fatalf("%+v is freed", u)
				}
				freed[u.ID] = true
				continue
			}
			s := u.Streams[a.Stream-process.Stdout]
			if !u.Live || u.Policy == process.Block || a.Before <= s.Base || a.Before > s.Base+(s.End-s.Base)/2 || a.Before%BlockSize != 0 {
				t.Fatalf("%+v is trimmed before %d", u, a.Before)
			}
			trimmed[fmt.Sprint(a.ID, a.Stream)] = a.Before - s.Base
		}
		var total int64
		more := false // something could still be freed
		for _, u := range usage {
			keep := u.TTL
			if keep == 0 {
				keep = ttl
			}
			if !u.Live && !u.Pinned && now.Sub(u.FinishedAt) >= keep && !removed[u.ID] {
				t.Fatalf("%+v is past its time and kept", u)
			}
			if removed[u.ID] {
				continue
			}
			if freed[u.ID] {
				total += u.facts()
				continue
			}
			more = more || !u.Live && !u.Pinned && u.Bytes() > u.facts()
			total += u.Bytes()
			for _, s := range u.Streams {
				freed := trimmed[fmt.Sprint(u.ID, s.Stream)]
				total -= freed
				more = more || u.Live && u.Policy == process.DropOldest && freed == 0 && s.End-s.Base >= 2*BlockSize
			}
		}
		if total > budget && more {
			t.Fatalf("%d bytes are kept with a budget of %d, though more could be freed", total, budget)
		}
	})
}
