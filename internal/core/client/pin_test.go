//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// nextServer opens a manager as a server does at its start. It is closed by
// the test, as the death of that server.
func nextServer(t *testing.T, dir string, cfg client.Config) (m *client.Manager, end func()) {
	t.Helper()
	cfg.StateDir, cfg.Environ = dir, os.Environ()
	m = proctest.Value(client.Open(t.Context(), cfg))(t)
	end = sync.OnceFunc(func() { m.Close() })
	t.Cleanup(end)
	return m, end
}

// meagre has room for nothing, and no time.
var meagre = client.Config{TTL: time.Nanosecond, Budget: 1}

// killKeeper ends the keeper and waits for the next one.
func killKeeper(t *testing.T, dir string) {
	t.Helper()
	keeper := func() int {
		a, err := anchor.Dial(dir)
		if err != nil {
			return 0
		}
		defer a.Close()
		roles, err := a.Roles()
		if err != nil {
			return 0
		}
		return roles.Keeper
	}
	was := keeper()
	if was <= 0 {
		t.Fatal("there is no keeper")
	}
	proctest.Must(t, syscall.Kill(was, syscall.SIGKILL))
	proctest.Eventually(t, "another keeper", func() bool { now := keeper(); return now > 0 && now != was })
}

func gone(t *testing.T, m process.Manager, ids ...process.ID) {
	t.Helper()
	for _, id := range ids {
		proctest.Eventually(t, string(id)+" is removed", func() bool {
			_, err := m.Get(t.Context(), process.Selector{ID: id})
			return errors.Is(err, process.ErrNotFound)
		})
	}
}

// Pins and the time that finished processes are kept hold over the deaths of
// server and keeper: a pin in the life of one is honoured by the next.
func TestPinsAndTTLsOutliveTheRoles(t *testing.T) {
	dir := testkeeper.Start(t)
	// A day is the default: what is removed below is removed for the TTL of
	// the servers that follow.
	m, end := nextServer(t, dir, client.Config{})
	for _, id := range []process.ID{"from-the-start", "while-it-ran", "afterwards", "unpinned", "never", "unpinned-before-the-end"} {
		spec := process.Spec{ID: id, Shell: "read x; echo $x", Stdin: process.StdinPipe}
		spec.Retention.Pin = id == "from-the-start" || id == "unpinned-before-the-end"
		proctest.Start(t, m, spec)
	}
	pin := func(id process.ID, pinned bool) {
		t.Helper()
		if err := proctest.Find(t, m, id).Pin(t.Context(), pinned); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	pin("while-it-ran", true)
	pin("unpinned", true)
	pin("unpinned-before-the-end", false)
	end()
	killKeeper(t, dir)

	m, end = nextServer(t, dir, client.Config{})
	list, err := m.List(t.Context(), process.Filter{})
	if err != nil || len(list) != 6 {
		t.Fatal(list, err)
	}
	for _, in := range list {
		want := in.ID == "from-the-start" || in.ID == "while-it-ran" || in.ID == "unpinned"
		if in.Pinned != want || in.Exit != nil {
			t.Errorf("after the deaths %s is pinned: %v, %v", in.ID, in.Pinned, in.Exit)
		}
		p := proctest.Find(t, m, in.ID)
		proctest.Write(t, p, "on\n")
		proctest.Wait(t, p, process.Until{EOF: true})
	}
	pin("afterwards", true)
	pin("unpinned", false)
	end()

	m, end = nextServer(t, dir, meagre)
	gone(t, m, "never", "unpinned", "unpinned-before-the-end")
	for _, id := range []process.ID{"from-the-start", "while-it-ran", "afterwards"} {
		in, err := proctest.Find(t, m, id).Info(t.Context())
		if err != nil || !in.Pinned || in.Streams[0].End-in.Streams[0].Base != 3 {
			t.Errorf("%s: %+v, %v", id, in, err)
		}
	}
	pin("afterwards", false)
	if err := proctest.Find(t, m, "while-it-ran").Remove(t.Context()); err != nil {
		t.Errorf("a pinned process is not removed when that is asked for: %v", err)
	}
	end()
	m, _ = nextServer(t, dir, meagre)
	gone(t, m, "afterwards", "while-it-ran")
	if in, err := proctest.Find(t, m, "from-the-start").Info(t.Context()); err != nil || !in.Pinned {
		t.Errorf("%+v, %v", in, err)
	}
}

// What a process leaves behind is not killed for want of readers, whether they leave
// before its exit or after it.
func TestReadersAreNotAwaitedAfterTheExit(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	p := proctest.Start(t, m, process.Spec{Shell: "sleep 1000 & read x", Stdin: process.StdinPipe, KillWithoutReaders: time.Hour})
	if !client.AwaitsReaders(p) {
		t.Error("it does not wait for readers while it runs")
	}
	r := proctest.Read(t, p, process.ReadOptions{})
	proctest.WriteLast(t, p, "")
	for _, err := range process.Follow(t.Context(), r) { // closes the reader
		if err != nil {
			t.Fatal(err)
		}
	}
	if client.AwaitsReaders(p) {
		t.Error("it waits for readers after its exit")
	}
	proctest.Kill(t, p)
}

// The time without readers begins again with a server, and the keeper's death
// changes nothing.
func TestAProcessWithoutReadersIsKilledOverDeathsOfTheRoles(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	p := proctest.Start(t, m, process.Spec{ID: "lonely", Shell: "exec sleep 100000", KillWithoutReaders: time.Second})
	if _, err := p.Read(t.Context(), process.ReadOptions{}); err != nil { // not closed: it dies with its server
		t.Fatal(err)
	}
	end()
	killKeeper(t, dir)
	m, _ = nextServer(t, dir, client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := proctest.Find(t, m, "lonely").Wait(ctx, process.Until{})
	if err != nil || res.Exit == nil || res.Exit.Cause != process.CauseNoReaders {
		t.Errorf("%+v, %v", res.Exit, err)
	}
}
