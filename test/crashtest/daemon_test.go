//go:build linux

package crashtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/internal/poorkernel"
	"github.com/tend-run/tend/internal/torture"
)

// roleVariable makes the test binary one of the workloads instead.
const roleVariable = "CRASHTEST_ROLE"

var (
	bin      string
	previous string // a tend whose keeper writes snapshots of the version before
	broken   string // a tend whose keeper ends at once
	pointed  string // a tend whose roles can be killed at named points
	self     string
)

// workArgument makes the test binary a workload of the engine.
const workArgument = "crashtest-workload"

func TestMain(m *testing.M) {
	poorkernel.Main(os.Environ())
	if len(os.Args) > 1 && os.Args[1] == workArgument {
		torture.Work(os.Args[2:])
	}
	if role := os.Getenv(roleVariable); role != "" {
		work(role)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tend-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if self, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// tend looks for its small binary beside itself, or inside: the one beside
	// is of this tree for certain, so the tend is built without a payload.
	for _, name := range []string{"tend-keeper", "tend"} {
		cmd := exec.Command("go", "build", "-overlay", overlay(dir), "-o", filepath.Join(dir, name), "../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	bin = filepath.Join(dir, "tend")
	if previous, err = beside(dir, "previous", func(keeper string) error {
		cmd := exec.Command("go", "build", "-tags", "tend_previous", "-o", keeper, "../../cmd/tend-keeper")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	}); err == nil {
		broken, err = beside(dir, "broken", func(keeper string) error { return os.WriteFile(keeper, []byte("#!/bin/sh\nexit 1\n"), 0o700) })
	}
	if err == nil {
		pointed, err = withPoints(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// withPoints builds both programs with the points at which roles can be killed.
func withPoints(dir string) (string, error) {
	sub := filepath.Join(dir, "points")
	for _, name := range []string{"tend-keeper", "tend"} {
		cmd := exec.Command("go", "build", "-tags", "tend_failpoint", "-overlay", overlay(dir), "-o", filepath.Join(sub, name), "../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return filepath.Join(sub, "tend"), nil
}

// beside makes a tend with another keeper beside it.
func beside(dir, name string, keeper func(path string) error) (string, error) {
	sub := filepath.Join(dir, name)
	if err := os.Mkdir(sub, 0o700); err != nil {
		return "", err
	}
	tend := filepath.Join(sub, "tend")
	if err := os.Link(filepath.Join(dir, "tend"), tend); err != nil {
		return "", err
	}
	return tend, keeper(filepath.Join(sub, "tend-keeper"))
}

// overlay hides a payload that an earlier `make build` left in the tree.
func overlay(dir string) string {
	payload, err := filepath.Abs("../../internal/payload/tend-keeper")
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {payload: ""}})
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		panic(err)
	}
	return path
}

// work is the workload: "counters N CODE PAUSE" writes the numbers 0..N-1 as 8
// bytes each, pausing now and then, and exits with CODE.
func work(role string) {
	f := strings.Fields(role)
	n, err1 := strconv.ParseUint(f[0], 10, 64)
	code, err2 := strconv.Atoi(f[1])
	pause, err3 := time.ParseDuration(f[2])
	if err1 != nil || err2 != nil || err3 != nil {
		os.Exit(99)
	}
	out := bufio.NewWriterSize(os.Stdout, 32<<10)
	const pauses = 16
	for i := range n {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], i)
		if _, err := out.Write(b[:]); err != nil {
			os.Exit(98) // a broken pipe must never be seen
		}
		if pause > 0 && n >= pauses && i%(n/pauses) == 0 {
			out.Flush()
			time.Sleep(pause)
		}
	}
	if out.Flush() != nil {
		os.Exit(98)
	}
	os.Exit(code)
}

// daemon is a running `tend serve`.
type daemon struct {
	t   *testing.T
	url string
	rnd *rand.Rand
}

func serve(t *testing.T, more ...string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "tend-crash-state-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, log := filepath.Join(dir, "url"), filepath.Join(dir, "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(bin, append([]string{"serve", "--listen", "127.0.0.1:0", "--state-dir", filepath.Join(dir, "state"), "--port-file", port}, more...)...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release, err := torture.Lifeline(cmd.Process.Pid)
	if err != nil {
		t.Error(err)
		release = func() {}
	}
	t.Cleanup(func() { release() })
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("tend serve ended with %v", err)
		}
		if t.Failed() {
			b, _ := os.ReadFile(log)
			t.Logf("log of the daemon:\n%s", b)
		}
	})
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CRASHTEST_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CRASHTEST_SEED=%d", seed)
	d := &daemon{t: t, rnd: rand.New(rand.NewPCG(seed, 0))}
	d.eventually("the daemon serves", func() bool {
		b, err := os.ReadFile(port)
		d.url = strings.TrimSpace(string(b))
		return err == nil && d.url != ""
	})
	return d
}

func (d *daemon) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not in time: %s", what)
		}
	}
}

func (d *daemon) dial(ctx context.Context) *tend.Client {
	d.t.Helper()
	c, err := tend.Dial(ctx, d.url, tend.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

func kills(t *testing.T) int {
	n := 12
	if s := os.Getenv("CRASHTEST_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
