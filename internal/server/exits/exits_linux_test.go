package exits

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/lib/onexit"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// receiver is a URL that takes messages while it is up.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	down   bool
	tries  int
	bodies [][]byte
	heads  []http.Header
}

func receive(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.tries++; r.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.bodies, r.heads = append(r.bodies, body), append(r.heads, req.Header)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) with(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *receiver) count() (tries, taken int) {
	r.with(func() { tries, taken = r.tries, len(r.bodies) })
	return tries, taken
}

var secret = []byte("a secret")

// running is the part over a keeper, until end is called.
func running(t *testing.T, m process.Manager, dir string) (end func()) {
	return runningAs(t, Config{Manager: m, Dir: dir, Secret: secret})
}

func runningAs(t *testing.T, c Config) (end func()) {
	x := Open(c)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(end)
	return end
}

// start starts a process that is pinned, as whoever sets the labels does.
func start(t *testing.T, m process.Manager, spec process.Spec) process.Process {
	t.Helper()
	spec.Retention.Pin = true
	spec.Stdin = process.StdinNull
	return proctest.Value(m.Start(t.Context(), spec))(t)
}

func pinned(t *testing.T, p process.Process) bool {
	return proctest.Value(p.Info(t.Context()))(t).Pinned
}

func TestWhatIsAskedForAtTheEndIsDone(t *testing.T) {
	proctest.Root(t)
	m, r, dir := testkeeper.New(t), receive(t), t.TempDir()
	running(t, m, filepath.Join(dir, "exits"))
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		proctest.Must(t, os.Chmod(at, 0o777)) // for the user
	}
	p := start(t, m, process.Spec{
		ID: "job", Name: "nightly", User: "nobody", Shell: "echo out; echo error >&2; kill -9 $$", Dir: dir, Env: map[string]string{"OWN": "mine"},
		Labels: map[string]string{onexit.LabelCommand: "env > env.part; pwd > pwd; id -un >> pwd; mv env.part env", onexit.LabelURL: r.URL},
	})
	proctest.Eventually(t, "it is done, and the process is not pinned any more", func() bool { return !pinned(t, p) })
	proctest.Eventually(t, "the command has ended", func() bool { _, err := os.Stat(filepath.Join(dir, "env")); return err == nil })
	env := "\n" + string(proctest.Value(os.ReadFile(filepath.Join(dir, "env")))(t))
	for _, want := range []string{"OWN=mine", "TEND_EXIT_ID=job", "TEND_EXIT_NAME=nightly", "TEND_EXIT_STATUS=137", "TEND_EXIT_SIGNAL=SIGKILL", "TEND_EXIT_CAUSE=signalled", "TEND_EXIT_OFFSET_STDOUT=4", "TEND_EXIT_OFFSET_STDERR=6"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("the command has not %s:%s", want, env)
		}
	}
	if at := strings.TrimSpace(string(proctest.Value(os.ReadFile(filepath.Join(dir, "pwd")))(t))); at != dir+"\nnobody" {
		t.Errorf("it ran in, and as, %s", at)
	}
	r.with(func() {
		var f facts
		proctest.Must(t, json.Unmarshal(r.bodies[0], &f))
		if len(r.bodies) != 1 || f.ID != "job" || f.Status != 137 || f.Signal != "SIGKILL" || f.Offsets["stdout"] != 4 || f.Sequence == 0 {
			t.Errorf("it took %s", r.bodies)
		}
		// As somebody else verifies it, who has the secret and the document.
		h := r.heads[0]
		mac := hmac.New(sha256.New, secret)
		fmt.Fprint(mac, h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."+string(r.bodies[0]))
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); h.Get("Webhook-Signature") != want || h.Get("Webhook-Id") == "" {
			t.Errorf("it is signed with %v; want %s", h, want)
		}
	})
}

// The part dies with its server, at any step: the next one does the rest, and nothing
// again that was written down.
func TestTheNextServerDoesTheRest(t *testing.T) {
	m, r, dir := testkeeper.New(t), receive(t), t.TempDir()
	state := filepath.Join(dir, "exits")
	p := start(t, m, process.Spec{ID: "job", Shell: "exit 3", Dir: dir, Labels: map[string]string{onexit.LabelCommand: "echo $TEND_EXIT_CODE >> codes", onexit.LabelURL: r.URL}})
	proctest.Value(p.Wait(t.Context(), process.Until{}))(t) // it ends while there is no server
	r.with(func() { r.down = true })
	end := running(t, m, state)
	codes := func() string { b, _ := os.ReadFile(filepath.Join(dir, "codes")); return string(b) }
	proctest.Eventually(t, "the command has run, and the URL was tried", func() bool {
		tries, _ := r.count()
		return codes() == "3\n" && tries > 0
	})
	if !pinned(t, p) {
		t.Error("what is not done yet may be forgotten")
	}
	end()
	r.with(func() { r.down = false })
	end = running(t, m, state)
	proctest.Eventually(t, "all is done", func() bool { return !pinned(t, p) })
	end()
	// Pinned again by somebody, it is known to be done.
	proctest.Must(t, p.Pin(t.Context(), true))
	running(t, m, state)()
	other := start(t, m, process.Spec{ID: "other", Shell: "true", Dir: dir, Labels: map[string]string{onexit.LabelURL: r.URL}})
	running(t, m, state)
	proctest.Eventually(t, "the next one is told", func() bool { return !pinned(t, other) })
	if _, taken := r.count(); codes() != "3\n" || taken != 2 {
		t.Errorf("the command wrote %q, and %d messages were taken; want one of each process", codes(), taken)
	}
	// What was written down goes with the process.
	proctest.Must(t, p.Remove(t.Context()))
	proctest.Eventually(t, "the files are gone", func() bool {
		_, err := os.Stat(filepath.Join(state, "job.url"))
		return os.IsNotExist(err)
	})
}

func TestNothingOfASandboxIsDoneOutside(t *testing.T) {
	m, r, dir := testkeeper.New(t), receive(t), t.TempDir()
	running(t, m, filepath.Join(dir, "exits"))
	labels := map[string]string{onexit.LabelCommand: "echo escaped > " + filepath.Join(dir, "escaped"), onexit.LabelURL: r.URL, process.LabelSandbox: "box"}
	p := start(t, m, process.Spec{Shell: "true", Dir: dir, Labels: labels})
	proctest.Value(p.Wait(t.Context(), process.Until{}))(t)
	later := start(t, m, process.Spec{Shell: "true", Dir: dir, Labels: map[string]string{onexit.LabelURL: r.URL}})
	proctest.Eventually(t, "one that ended later is told", func() bool { return !pinned(t, later) })
	all := proctest.Value(m.List(t.Context(), process.Filter{}))(t)
	if _, taken := r.count(); taken != 1 || len(all) != 2 {
		t.Errorf("%d messages, and %d processes", taken, len(all))
	}
}

func TestWhatCannotBeDoneIsGivenUp(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	running(t, m, filepath.Join(dir, "exits"))
	p := start(t, m, process.Spec{ID: "job", Shell: "true", Dir: dir, Labels: map[string]string{onexit.LabelURL: "file:///etc/passwd"}})
	proctest.Eventually(t, "it is given up", func() bool { return !pinned(t, p) })
	if text := proctest.Value(os.ReadFile(filepath.Join(dir, "exits", "job.url")))(t); !strings.Contains(string(text), "no URL of http") {
		t.Errorf("it says %s", text)
	}
	long := strings.Repeat("a", process.MaxIDLen)
	if a, b := commandID(process.ID(long[:99]+"b")), commandID(process.ID(long)); a == b || a.Validate() != nil || b.Validate() != nil {
		t.Errorf("%s and %s", a, b)
	}
}

// slow is a way to URLs on which messages are held until they may go.
type slow struct {
	goOn       chan struct{}
	now, taken atomic.Int64
	most       atomic.Int64 // at a time
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-s.goOn:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	s.taken.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// A URL that does not answer takes a bounded number of descriptors, however many have ended.
func TestSoManyMessagesAreUnderWayAtATime(t *testing.T) {
	m, way := testkeeper.New(t), &slow{goOn: make(chan struct{})}
	runningAs(t, Config{Manager: m, Dir: t.TempDir(), HTTP: &http.Client{Transport: way}, Sends: 2})
	const all = 6
	for range all {
		p := start(t, m, process.Spec{Argv: []string{"true"}, Labels: map[string]string{onexit.LabelURL: "http://127.0.0.1:1/"}})
		proctest.Eventually(t, "it has ended", func() bool { return proctest.Value(p.Info(t.Context()))(t).Exit != nil })
	}
	proctest.Eventually(t, "messages are under way", func() bool { return way.now.Load() == 2 })
	close(way.goOn)
	proctest.Eventually(t, "each is taken", func() bool { return way.taken.Load() == all })
	if most := way.most.Load(); most != 2 {
		t.Errorf("%d messages were under way at a time; want 2", most)
	}
}

// replaced is a manager whose keeper is just being replaced, so many times each, when a
// process is looked for and when it is unpinned.
type replaced struct {
	process.Manager
	gets, pins atomic.Int64
}

func (m *replaced) Get(ctx context.Context, s process.Selector) (process.Process, error) {
	if m.gets.Add(-1) >= 0 {
		return nil, process.ErrUnavailable
	}
	p, err := m.Manager.Get(ctx, s)
	return replacedProcess{p, m}, err
}

type replacedProcess struct {
	process.Process
	m *replaced
}

func (p replacedProcess) Pin(ctx context.Context, pin bool) error {
	if p.m.pins.Add(-1) >= 0 {
		return process.ErrUnavailable
	}
	return p.Process.Pin(ctx, pin)
}

// What ends while a keeper is being replaced has its message, and is not kept for ever.
func TestNoExitIsMissedWhileAKeeperIsReplaced(t *testing.T) {
	for what, times := range map[string][2]int64{"when it is looked for": {1, 0}, "when it is unpinned": {0, 1}} {
		t.Run(what, func(t *testing.T) {
			m, r := &replaced{Manager: testkeeper.New(t)}, receive(t)
			running(t, m, t.TempDir())
			end := func() process.Process {
				return start(t, m.Manager, process.Spec{Argv: []string{"true"}, Labels: map[string]string{onexit.LabelURL: r.URL}})
			}
			first := end() // from then on ends are followed
			proctest.Eventually(t, "the first is done", func() bool { return !pinned(t, first) })
			m.gets.Store(times[0])
			m.pins.Store(times[1])
			p := end()
			proctest.Eventually(t, "it is done", func() bool { return !pinned(t, p) })
			if m.gets.Load() > 0 || m.pins.Load() > 0 {
				t.Error("the keeper was not asked while it was away")
			}
		})
	}
}

// writing is a manager during whose lists something is being written down.
type writing struct {
	process.Manager
	file string
}

func (m *writing) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	if err := os.WriteFile(m.file, []byte("do"), 0o600); err != nil {
		return nil, err
	}
	return m.Manager.List(ctx, f)
}

// What is being written down is not taken away as that of a process which is gone; what a
// server that was killed has left is.
func TestWhatIsBeingWrittenDownStays(t *testing.T) {
	dir, r := t.TempDir(), receive(t)
	left := filepath.Join(dir, ".left.command-1")
	proctest.Must(t, os.WriteFile(left, []byte("do"), 0o600))
	m := &writing{testkeeper.New(t), filepath.Join(dir, ".id.command-2")}
	running(t, m, dir)
	p := start(t, m, process.Spec{Argv: []string{"true"}, Labels: map[string]string{onexit.LabelURL: r.URL}})
	proctest.Eventually(t, "it is done", func() bool { return !pinned(t, p) })
	if _, err := os.Stat(m.file); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed server has left is there")
	}
}
