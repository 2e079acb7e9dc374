package work

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// A server that ends in the middle of a restart does not make the remedy a bad one: what it
// did not take is asked again, and what it took is not.
func TestARestartOutlivesALostAnswer(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	w.order.Service = "web"
	proctest.Must(t, w.client.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte("services:\n  web: {command: [sleep, '1000']}\n"), Env: map[string]string{"PATH": w.path}}))
	proctest.Must(t, w.client.StartServices(t.Context()))
	running := func() (s tend.Service) {
		t.Helper()
		proctest.Eventually(t, "it runs", func() bool { s = proctest.Value(w.service(t.Context()))(t); return s.PID > 0 })
		return s
	}
	for name, taken := range map[string]bool{"not taken": false, "taken": true} {
		lost := false
		lose := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				if lost || req.Spec().Procedure != tendv1connect.ServiceServiceRestartProcedure {
					return next(ctx, req)
				}
				if lost = true; taken {
					if res, err := next(ctx, req); err != nil {
						return res, err
					}
				}
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("connection reset by peer"))
			}
		})
		c := proctest.Value(tend.Dial(t.Context(), w.order.URL, tend.Options{Interceptors: []connect.Interceptor{lose}}))(t)
		before := running()
		w.client = c
		if err := w.restart(t.Context()); err != nil || !lost {
			t.Errorf("%s: %v", name, err)
		}
		if s := running(); s.Runs != before.Runs+1 || s.PID == before.PID {
			t.Errorf("%s: it was run %d as pid %d, and is run %d as pid %d", name, before.Runs, before.PID, s.Runs, s.PID)
		}
		t.Cleanup(func() { c.Close() })
	}
}
