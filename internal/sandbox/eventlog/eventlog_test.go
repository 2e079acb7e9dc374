package eventlog_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
	"github.com/tend-run/tend/internal/support/proctest"
)

func open(t *testing.T, path string) *eventlog.Log {
	t.Helper()
	l, err := eventlog.Open(path, slog.New(slog.DiscardHandler))
	proctest.Must(t, err)
	return l
}

func add(l *eventlog.Log, id driver.ID, kind driver.EventKind, at time.Time, metadata map[string]string) {
	l.Add(driver.Event{ID: string(driver.NewVolumeID()), Kind: kind, Time: at, Info: driver.Info{ID: id, Metadata: metadata}})
}

func kindsIn(list []eventlog.Event) string {
	var all []string
	for _, e := range list {
		all = append(all, string(e.Kind))
	}
	return strings.Join(all, " ")
}

func TestEventsAreKeptOverRestarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	l, now := open(t, path), time.Now().UTC().Round(0)
	a, b := driver.NewID(), driver.NewID()
	for _, kind := range []driver.EventKind{driver.EventCreated, driver.EventUpdated, driver.EventPaused, driver.EventResumed} {
		add(l, a, kind, now, map[string]string{"k": "v"})
	}
	add(l, b, driver.EventCreated, now, nil)
	before := l.List(eventlog.Query{Limit: 100})
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	proctest.Must(t, err)
	_, err = f.WriteString(`{"seq":99`) // as of a server that was killed meanwhile
	proctest.Must(t, err)
	f.Close()

	l = open(t, path)
	if got := l.List(eventlog.Query{Limit: 100}); fmt.Sprint(got) != fmt.Sprint(before) || len(got) != 5 {
		t.Errorf("after a restart there is %+v; before it %+v", got, before)
	}
	add(l, a, driver.EventDestroyed, now, nil)
	l = open(t, path)
	of := l.List(eventlog.Query{Sandbox: a, Limit: 100, Ascending: true})
	if got := kindsIn(of); got != "created updated paused resumed destroyed" {
		t.Errorf("of one sandbox: %s", got)
	}
	// A run is from a creation or a resumption on.
	if of[0].Run != of[2].Run || of[2].Run == of[3].Run || of[3].Run != of[4].Run {
		t.Errorf("the runs are %+v", of)
	}
	if got := kindsIn(l.List(eventlog.Query{Limit: 2, Offset: 1})); got != "created resumed" {
		t.Errorf("the second and third of the newest are %s", got)
	}
	only := func(k driver.EventKind) bool { return k == driver.EventCreated }
	if got := kindsIn(l.List(eventlog.Query{Limit: 9, Wanted: only})); got != "created created" {
		t.Errorf("of one kind: %s", got)
	}
}

func TestWhoFollowsGetsEachEventOnce(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "events"))
	const count = 1000
	go func() {
		for range count {
			add(l, driver.NewID(), driver.EventCreated, time.Now(), nil)
		}
	}()
	last, deadline := int64(0), time.After(time.Minute)
	for got := 0; got < count; {
		e, ok, changed := l.After(last)
		if ok && e.Seq <= last {
			t.Fatalf("%d comes after %d", e.Seq, last)
		}
		if ok {
			last = e.Seq
			got++
			continue
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%d of %d events have come", got, count)
		}
	}
	if l.Last() != last {
		t.Errorf("the last is %d, not %d", l.Last(), last)
	}
}

func TestALogHasBounds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	l, id := open(t, path), driver.NewID()
	add(l, id, driver.EventCreated, time.Now().Add(-eventlog.Age-time.Hour), nil)
	if all := l.List(eventlog.Query{Limit: 9}); len(all) != 0 {
		t.Errorf("what is too old is kept: %+v", all)
	}
	add(l, id, driver.EventPaused, time.Now(), map[string]string{"k": strings.Repeat("x", 40<<10)})
	if e := l.List(eventlog.Query{Limit: 1})[0]; e.Metadata != nil || !e.Omitted {
		t.Error("large metadata is kept")
	}
	for range 1000 {
		add(l, id, driver.EventUpdated, time.Now(), map[string]string{"k": strings.Repeat("x", 30<<10)})
	}
	if all := l.List(eventlog.Query{Limit: 1000}); len(all) < 200 || len(all) > eventlog.MaxBytes/(30<<10) {
		t.Errorf("%d large events are kept", len(all))
	}
	if info := proctest.Value(os.Stat(path))(t); info.Size() > 2*eventlog.MaxBytes || info.Mode() != 0o600 {
		t.Errorf("the file has %d bytes, %v", info.Size(), info.Mode())
	}
	for range eventlog.MaxEvents + 10 {
		add(l, id, driver.EventUpdated, time.Now(), nil)
	}
	if all := l.List(eventlog.Query{Limit: 1 << 20}); len(all) != eventlog.MaxEvents {
		t.Errorf("%d small events are kept", len(all))
	}
	if all := open(t, path).List(eventlog.Query{Limit: 1 << 20}); len(all) != eventlog.MaxEvents {
		t.Errorf("after a restart there are %d", len(all))
	}
}
