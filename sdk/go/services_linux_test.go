package tend_test

import (
	"context"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/server/services"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// kept is a server of the native API that keeps services.
func kept(t *testing.T, m process.Manager) native.Config {
	t.Helper()
	s := services.Open(services.Config{Manager: m, Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("services: %v", err)
		}
	})
	return native.Config{Manager: m, Services: services.API{Services: s}}
}

// Whoever watches services is told how they are in the end, and never something older
// than before, though connections break and fall silent, and the server is replaced.
func TestServicesAreWatchedWhateverHappensToConnections(t *testing.T) {
	for name, kind := range map[string]faultKind{"they are closed": closes, "they are reset": resets, "they go silent": silent} {
		for version, http1 := range map[string]bool{"HTTP/2": false, "HTTP/1.1": true} {
			t.Run(name+", over "+version, func(t *testing.T) {
				t.Parallel()
				cfg := kept(t, testkeeper.New(t))
				stopping := make(chan struct{})
				first, second := serveFace(t, cfg, stopping, nil), serveFace(t, cfg, nil, nil)
				direct := dial(t, second.URL, tend.Options{})
				proctest.Must(t, direct.ApplyServices(t.Context(), tend.ServiceFile{Dir: "/", Text: []byte("services: {x: {command: exec sleep 1000}}")}))
				proctest.Must(t, direct.StartServices(t.Context()))
				var faults []fault
				for i := range int64(64) { // some connections end before theirs
					faults = append(faults, fault{after: 700 + 333*i, kind: kind})
				}
				px := newProxy(t, first.Listener.Addr().String(), faults...)
				c := dial(t, px.url(), tend.Options{HTTP1: http1, Silence: 250 * time.Millisecond})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				const rounds = 12
				asked, seen := int64(1), int64(0)
				for all, err := range c.WatchServices(ctx) {
					if err != nil || len(all) != 1 {
						t.Fatalf("after run %d: %v, %v", seen, all, err)
					}
					if all[0].Runs < seen {
						t.Fatalf("run %d is told after run %d", all[0].Runs, seen)
					}
					if seen = all[0].Runs; !all[0].Ready || seen < asked {
						continue
					}
					if seen >= rounds && px.breaks() >= 3 {
						break
					}
					if seen == rounds/2 { // an upgrade
						px.retarget(second.Listener.Addr().String())
						close(stopping)
					}
					asked++
					proctest.Must(t, direct.RestartServices(ctx, "x"))
				}
				if seen < rounds {
					t.Errorf("it was told up to run %d: %v", seen, ctx.Err())
				}
				proctest.Must(t, direct.StopServices(t.Context()))
			})
		}
	}
}
