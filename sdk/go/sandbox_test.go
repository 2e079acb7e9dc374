//go:build unix

package tend_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// withSandboxes is a client of a server with the sandboxes of the host driver.
func withSandboxes(t testing.TB, around func(http.Handler) http.Handler) *tend.Client {
	t.Helper()
	return withSandboxesBy(t, tend.Options{}, around)
}

func withSandboxesBy(t testing.TB, options tend.Options, around func(http.Handler) http.Handler) *tend.Client {
	t.Helper()
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	return dial(t, serveFace(t, native.Config{Manager: m, Driver: d}, nil, around).URL, options)
}

func printed(t testing.TB, p *tend.Processes, line string) string {
	t.Helper()
	return proctest.Value(p.Run(t.Context(), tend.Shell(line)))(t).Stdout
}

// A name may be taken by a creation that fails before one looks for its sandbox.
func TestANameThatIsFreeAgainIsUsed(t *testing.T) {
	t.Parallel()
	var calls, taken atomic.Int32
	soon := tend.Options{Retry: tend.Retry{First: time.Millisecond, Max: 50 * time.Millisecond}}
	c := withSandboxesBy(t, soon, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == tendv1connect.SandboxServiceCreateProcedure && calls.Add(1) <= taken.Load() {
				_ = connect.NewErrorWriter().Write(w, r, tendpb.Error(process.ErrExists))
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	taken.Store(2)
	info, err := tend.NewSandbox(c, tend.SandboxSpec{Name: "free"}).Info(t.Context())
	if err != nil || info.Name != "free" || calls.Load() != 3 {
		t.Errorf("%+v, %v after %d calls", info, err, calls.Load())
	}
	// A creation of our own whose answer was lost still runs, and has the name meanwhile.
	begun := time.Now()
	taken.Store(calls.Load() + 8)
	if info, err := tend.NewSandbox(c, tend.SandboxSpec{Name: "slow"}).Info(t.Context()); err != nil || time.Since(begun) < 100*time.Millisecond {
		t.Errorf("%+v, %v: eight tries in %v", info, err, time.Since(begun))
	}
	taken.Store(1 << 20)
	if info, err := tend.NewSandbox(c, tend.SandboxSpec{Name: "never"}).Info(t.Context()); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("a name that is never free: %+v, %v", info, err)
	}
}

func TestASandboxHasProcessesOfItsOwn(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil)
	one := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "one", Env: map[string]string{"WHERE": "one"}, Metadata: map[string]string{"of": "me"}}))(t)
	two := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{}))(t)
	info := proctest.Value(one.Info(t.Context()))(t)
	if info.Name != "one" || info.State != tend.SandboxReady || info.Isolation != tend.IsolationNone || info.Env["WHERE"] != "one" || info.Created.IsZero() {
		t.Errorf("made: %+v", info)
	}
	if got := printed(t, one.Processes(), `echo "$WHERE"; pwd`); got != "one\n"+info.Dir+"\n" {
		t.Errorf("it wrote %q", got)
	}
	p := proctest.Value(one.Processes().Spawn(t.Context(), piped(tend.Command("cat"))))(t)
	defer p.Close()
	proctest.Value(p.Stdin().Write([]byte("hello")))(t)
	proctest.Must(t, p.Stdin().Close())
	if res := proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t); res.Stdout != "hello" {
		t.Errorf("cat wrote %q", res.Stdout)
	}
	if in := proctest.Value(one.Processes().List(t.Context()))(t); len(in) != 1 || in[0].ID != p.ID() {
		t.Errorf("in one: %+v", in)
	}
	if in := proctest.Value(two.Processes().List(t.Context()))(t); len(in) != 0 {
		t.Errorf("in two: %+v", in)
	}
	inside := proctest.Value(two.Client(t.Context()))(t)
	if _, err := inside.Get(t.Context(), process.Selector{ID: p.ID()}); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("from two: %v", err)
	}
	proctest.Must(t, inside.Close()) // it is not its own
	if found := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{Metadata: map[string]string{"of": "me"}}))(t); len(found) != 1 || found[0].ID != info.ID {
		t.Errorf("mine: %+v", found)
	}
	printed(t, two.Processes(), "true")
}

func TestASandboxLivesAndEnds(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil)
	sandbox := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "box", Timeout: time.Hour}))(t)
	printed(t, sandbox.Processes(), "echo kept > file")
	proctest.Must(t, sandbox.Stop(t.Context()))
	if _, err := sandbox.Processes().Spawn(t.Context(), tend.Command("true")); !errors.Is(err, tend.ErrSandboxStopped) {
		t.Errorf("a command in a stopped sandbox: %v", err)
	}
	passive := proctest.Value(proctest.Value(c.Sandbox(t.Context(), "box"))(t).Passive(t.Context()))(t)
	if _, err := passive.Processes().Spawn(t.Context(), tend.Command("true")); !errors.Is(err, tend.ErrSandboxStopped) {
		t.Errorf("a command by a handle that starts nothing: %v", err)
	}
	proctest.Must(t, sandbox.Start(t.Context()))
	if got := printed(t, passive.Processes(), "cat file"); got != "kept\n" {
		t.Errorf("after a stop the file has %q", got)
	}
	name, never := "other", time.Duration(0)
	info := proctest.Value(sandbox.Update(t.Context(), tend.SandboxChange{Name: &name, Timeout: &never, Env: map[string]string{"A": "1"}}))(t)
	if info.Name != "other" || !info.Deadline.IsZero() || info.Env["A"] != "1" {
		t.Errorf("changed: %+v", info)
	}
	again := proctest.Value(c.Sandbox(t.Context(), "other"))(t)
	if err := sandbox.Pause(t.Context()); !errors.Is(err, process.ErrUnsupported) {
		t.Errorf("a pause by the host driver: %v", err)
	}
	proctest.Must(t, again.Destroy(t.Context()))
	proctest.Must(t, sandbox.Destroy(t.Context()))
	for _, s := range []*tend.Sandbox{sandbox, again} {
		if _, err := s.Processes().Spawn(t.Context(), tend.Command("true")); !errors.Is(err, process.ErrNotFound) || !strings.Contains(err.Error(), info.ID) {
			t.Errorf("a command in a sandbox that was destroyed: %v", err)
		}
	}
	if _, err := c.Sandbox(t.Context(), "other"); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("it is found: %v", err)
	}
}

func TestALazySandboxIsMadeOnceAndStarted(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil)
	never := tend.NewSandbox(c, tend.SandboxSpec{Name: "never"})
	proctest.Must(t, never.Destroy(t.Context()))
	sandbox := tend.NewSandbox(c, tend.SandboxSpec{Name: "lazy"})
	if all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t); len(all) != 0 {
		t.Fatalf("made before it is needed: %+v", all)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := sandbox.Processes().Run(t.Context(), tend.Shell("echo x >> file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	proctest.Must(t, sandbox.Stop(t.Context()))
	// Another program, which knows the name alone.
	other := tend.NewSandbox(c, tend.SandboxSpec{Name: "lazy"})
	if got := printed(t, other.Processes(), "wc -l < file"); strings.TrimSpace(got) != "8" {
		t.Errorf("the file has %q lines", got)
	}
	if all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{States: []tend.SandboxState{tend.SandboxReady}}))(t); len(all) != 1 {
		t.Errorf("there are %+v", all)
	}
	if _, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "lazy"}); !errors.Is(err, process.ErrExists) {
		t.Errorf("another of the name: %v", err)
	}
	for field, spec := range map[string]tend.SandboxSpec{"name": {Name: "../x"}, "spec": {Metadata: map[string]string{"a": "\xff"}}, "timeout": {Timeout: -time.Second}} {
		_, err := tend.NewSandbox(c, spec).ID(t.Context())
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != field {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
}

func TestALostAnswerMakesNoSecondSandboxAndNoSecondProcess(t *testing.T) {
	t.Parallel()
	var creates, starts atomic.Int32
	lostStart, lostCreate := losing("Start", func(n int32) bool { return n == 1 }, &starts), losing("Create", func(n int32) bool { return n == 1 }, &creates)
	c := withSandboxes(t, func(h http.Handler) http.Handler { return lostStart(lostCreate(h)) })
	if _, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "box"}); err == nil {
		t.Fatal("an answer that was lost came")
	}
	sandbox := tend.NewSandbox(c, tend.SandboxSpec{Name: "box"})
	inside := proctest.Value(sandbox.Client(t.Context()))(t) // its Start loses its answer, too
	starts.Store(0)
	p := proctest.Value(inside.Spawn(t.Context(), tend.Shell("echo x >> file; wc -l < file")))(t)
	defer p.Close()
	if res := proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t); strings.TrimSpace(res.Stdout) != "1" {
		t.Errorf("it ran with %q", res.Stdout)
	}
	if all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t); len(all) != 1 || starts.Load() != 2 {
		t.Errorf("%d sandboxes, %d starts", len(all), starts.Load())
	}
}

func TestAServerWithoutSandboxesIsAskedForNone(t *testing.T) {
	t.Parallel()
	c := connected(t)
	for what, err := range map[string]error{
		"create": func() error { _, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{}); return err }(),
		"find":   func() error { _, err := c.Sandbox(t.Context(), "x"); return err }(),
		"list":   func() error { _, err := c.Sandboxes(t.Context(), tend.SandboxFilter{}); return err }(),
		"spawn": func() error {
			_, err := tend.NewSandbox(c, tend.SandboxSpec{}).Processes().Spawn(t.Context(), tend.Command("true"))
			return err
		}(),
	} {
		if !errors.Is(err, process.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all := proctest.Value(c.List(t.Context(), process.Filter{}))(t); len(all) != 0 {
		t.Errorf("on the machine: %+v", all)
	}
}
