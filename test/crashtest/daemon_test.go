//go:build linux

package crashtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// roleVariable makes the test binary one of the workloads instead.
const (
	roleVariable = "CRASHTEST_ROLE"
	gateVariable = "CRASHTEST_GATE" // of a workload
)

var (
	bin      string
	previous string // a tend whose keeper writes snapshots of the version before
	broken   string // a tend whose keeper ends at once
	fakellm  string // plays a language model
	pointed  string // a tend whose roles can be killed at named points
	self     string
)

// workArgument makes the test binary a workload of the engine.
const workArgument = "crashtest-workload"

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	if len(os.Args) > 1 && os.Args[1] == workArgument {
		torture.Work(os.Args[2:])
	}
	if role := os.Getenv(roleVariable); role != "" {
		work(role)
	}
	if addr := os.Getenv(serveRole); addr != "" {
		serveHTTP(addr)
	}
	if os.Getenv(socketRole) != "" {
		serveSockets()
	}
	flag.Set("test.parallel", "6") // they mostly wait; -parallel says otherwise
	os.Exit(testbin.Main(func(dir string) int {
		bin, previous, pointed = testbin.Released.Tend(dir), testbin.Previous.Tend(dir), testbin.Points.Tend(dir)
		broken, fakellm = testbin.Bare.Tend(dir), testbin.FakeLLM(dir)
		var err error
		self, err = os.Executable()
		tmp, terr := os.MkdirTemp("", "t") // short: there are sockets below it
		if terr == nil {
			defer os.RemoveAll(tmp)
			terr = spread(tmp)
		}
		if err := errors.Join(err, terr, os.WriteFile(filepath.Join(filepath.Dir(broken), "tend-keeper"), []byte("#!/bin/sh\nexit 1\n"), 0o700)); err != nil {
			panic(err)
		}
		return m.Run()
	}, testbin.Released, testbin.Previous, testbin.Points, testbin.Bare, testbin.Model))
}

// work is the workload, once its gate is open: "N CODE PAUSE" writes the numbers 0..N-1
// as 8 bytes each, pausing now and then, and exits with CODE.
func work(role string) {
	f := strings.Fields(role)
	n, err1 := strconv.ParseUint(f[0], 10, 64)
	code, err2 := strconv.Atoi(f[1])
	pause, err3 := time.ParseDuration(f[2])
	if err1 != nil || err2 != nil || err3 != nil {
		os.Exit(99)
	}
	if gate := os.Getenv(gateVariable); gate != "" {
		if _, err := os.Open(gate); err != nil {
			os.Exit(97)
		}
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

type daemon struct{ *testdaemon.Daemon }

// serve starts a daemon for one test.
func serve(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return &daemon{testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Flags: flags})}
}

// begin is serve with a client, and a context for as long as the test may take.
func begin(t *testing.T, limit time.Duration) (context.Context, *daemon, *tend.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	d := serve(t)
	return ctx, d, d.Connect(t)
}

// killsVariable says how many kills each test takes, and that time does not matter.
const killsVariable = "CRASHTEST_KILLS"

func soaked() bool { return os.Getenv(killsVariable) != "" }

func kills(t *testing.T) int {
	n := 12
	if s := os.Getenv(killsVariable); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
