package work

import (
	"runtime"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// A process that does not read its input is ended all the same, while it is written to.
func TestAProcessThatDoesNotReadIsEnded(t *testing.T) {
	c := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}, Dir: t.TempDir()}).Connect(t)
	p := proctest.Value(c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "inf"}, Stdin: process.StdinPipe}))(t)
	to := newConn(&worker{}, p)
	wrote := make(chan error, 1)
	go func() {
		_, err := to.Write(make([]byte, 256<<20))
		wrote <- err
	}()
	for to.input.TryLock() { // until it writes
		to.input.Unlock()
		runtime.Gosched()
	}
	proctest.Must(t, to.Close())
	if err := <-wrote; err == nil {
		t.Error("it was written")
	}
	for { // what reads its output ends, too
		if _, err := to.Read(make([]byte, 1)); err != nil {
			break
		}
	}
}
