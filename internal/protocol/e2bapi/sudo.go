package e2bapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/process"
)

// What package sudo of core, which is the program inside, calls and is called by. Programs of older layers call it, too.
const (
	sudoDoor   = "/-/sudo/"
	sudoPath   = "/usr/bin/sudo"
	sudoHelper = "--tend-root"
)

var isSudoName = lazyregexp.New(`^[0-9a-f]{32}$`)

// sudoRoute is for programs inside of a sandbox, which need no token: whether one may use sudo the helper decides, by what
// the kernel says of the caller. All that a program can have started here is that helper, in its own sandbox.
func (f *Face) sudoRoute() module.Route {
	return module.Route{Pattern: "POST " + sudoDoor + "{name}", Access: module.Own, Inside: true, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if err := f.sudo(r); err != nil {
				f.refuse(w, err)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})}
}

const (
	// helperEnds is how long a helper may take whose client is gone: it kills the command first. Then it is killed itself.
	helperEnds = 5 * time.Second
	// betweenHelpers is the least time between two starts in one sandbox, so a program that asks without end holds up
	// its own sandbox alone.
	betweenHelpers = 5 * time.Millisecond
)

// turns lets one helper of a sandbox start at a time.
type turns struct {
	mu  sync.Mutex
	all map[driver.ID]*turn // those that somebody waits for; guarded by mu
}

type turn struct {
	free    chan struct{}
	waiting int // guarded by turns.mu
}

// take waits for a sandbox's turn, which lasts until the function is called.
func (t *turns) take(ctx context.Context, id driver.ID) (release func(), err error) {
	t.mu.Lock()
	one := t.all[id]
	if one == nil {
		if t.all == nil {
			t.all = map[driver.ID]*turn{}
		}
		one = &turn{free: make(chan struct{}, 1)}
		t.all[id] = one
	}
	one.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.waiting--; one.waiting == 0 {
			delete(t.all, id)
		}
	}
	select {
	case one.free <- struct{}{}:
		return func() { <-one.free; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// sudo runs a helper to its end, so a sandbox has as many as it has connections, and leaves no trace of it.
func (f *Face) sudo(r *http.Request) error {
	id, name := route.Inside(r.Context()), r.PathValue("name")
	if id == "" || !isSudoName.MatchString(name) {
		return &problem{http.StatusNotFound, "this path is for the program " + sudoPath + " of sandboxes"}
	}
	s, err := f.driver.Get(r.Context(), string(id))
	if err != nil {
		return gone(string(id), err)
	}
	ctx := context.WithoutCancel(r.Context())
	release, err := f.helpers.take(r.Context(), id)
	if err != nil {
		return err
	}
	p, err := s.Processes().Start(ctx, process.Spec{
		Argv: []string{sudoPath, sudoHelper, name}, User: "root", Dir: "/", Stdin: process.StdinNull,
	})
	time.Sleep(betweenHelpers)
	release()
	if err != nil {
		return err
	}
	_, err = p.Wait(r.Context(), process.Until{})
	if err != nil && !f.clientIsGone(p) { // the server ends: the command goes on, and its client with it
		return err
	}
	_ = p.Remove(ctx) // one that has left processes behind stays in the list, as they do
	return nil
}

// clientIsGone waits for a helper whose request has ended, and kills it after a while. false: the server ends.
func (f *Face) clientIsGone(p process.Process) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := p.Wait(ctx, process.Until{}); ended <- err }()
	select {
	case err := <-ended:
		return err == nil
	case <-f.over:
	case <-time.After(helperEnds):
		_, _ = p.Kill(ctx)
		return true
	}
	cancel()
	<-ended
	return false
}
