//go:build linux

package limits

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// serveOn starts a daemon whose state directory is a tmpfs of its own, in a
// mount namespace of its own, and returns also the way there.
func serveOn(t *testing.T, size string) (d *daemon, disk string) {
	t.Helper()
	unshare := "unshare -m"
	if os.Geteuid() != 0 {
		unshare = "unshare -Urm"
		if out, err := exec.Command("unshare", "-Urm", "true").CombinedOutput(); err != nil {
			t.Fatalf("only root may mount a small filesystem here: %v, %s", err, out)
		}
	}
	d = serve(t,
		`if [ -z "${LIMITS_MOUNTED:-}" ]; then mkdir -p "$state"; export LIMITS_MOUNTED=1; exec `+unshare+` "$0" "$@"; fi`,
		`mount -t tmpfs -o mode=700,size=`+size+` none "$state"`)
	return d, fmt.Sprintf("/proc/%d/root%s", d.Roles()[testdaemon.Launcher], d.StateDir())
}

// fill writes a file until the filesystem has no room for it, and returns what
// frees it.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	path := filepath.Join(disk, "filler")
	f := proctest.Value(os.Create(path))(t)
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		var err error
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() {
		proctest.Must(t, os.Truncate(path, 0))
	}
}

// collect reads to the end of a process with the shortest patience, and
// returns stdout and the exit.
func collect(ctx context.Context, p process.Process) (text string, exit *process.Exit, err error) {
	for ev, err := range process.Events(ctx, p, process.ReadOptions{}) {
		if err != nil {
			return text, exit, err
		}
		switch ev.Kind {
		case process.EventOutput:
			if exit != nil {
				return text, exit, errors.New("output after the exit")
			}
			text += string(ev.Data)
		case process.EventExited:
			exit = ev.Exit
		}
	}
	return text, exit, nil
}

func TestAFullDisk(t *testing.T) {
	d, disk := serveOn(t, "32m")
	same := d.sameRoles()

	t.Run("makes room for a start at the expense of what finished processes wrote", func(t *testing.T) {
		old := proctest.Start(t, d.c, process.Spec{Shell: "head -c 8388608 /dev/zero"})
		proctest.Value(old.Wait(t.Context(), process.Until{EOF: true}))(t)
		free := fill(t, disk)
		defer free()
		// Directories that were made beforehand need no room.
		for range 80 {
			p, err := d.c.Start(t.Context(), process.Spec{Shell: "echo fits"})
			if err != nil {
				t.Fatalf("a start on a full disk says %v", err)
			}
			if text, exit, err := collect(t.Context(), p); err != nil || text != "fits\n" || exit == nil || exit.Code != 0 {
				t.Fatalf("its output is %q, %v, %v", text, exit, err)
			}
			in, err := old.Info(t.Context())
			if err != nil || in.Exit == nil || in.Exit.Code != 0 || in.Streams[0].End != 8<<20 {
				t.Fatalf("what became of the old process is forgotten: %+v, %v", in, err)
			}
			if in.Streams[0].Base == 8<<20 {
				return
			}
		}
		t.Error("the output of the old process is still there: the disk was not full")
	})

	t.Run("with nothing to free refuses a start and says what to do", func(t *testing.T) {
		infos := proctest.Value(d.c.List(t.Context(), process.Filter{}))(t)
		for _, in := range infos {
			p, err := d.c.Get(t.Context(), process.Selector{ID: in.ID})
			if err == nil {
				err = p.Remove(t.Context())
			}
			if err != nil && !errors.Is(err, process.ErrNotFound) {
				t.Fatal(err)
			}
		}
		free := fill(t, disk)
		var refusal error
		for range 80 {
			// One that lives, so that there is nothing to free.
			if _, refusal = d.c.Start(t.Context(), process.Spec{Argv: []string{"/bin/sleep", "3600"}}); refusal != nil {
				break
			}
		}
		if !limited(refusal) || !errors.Is(refusal, syscall.ENOSPC) || !strings.Contains(refusal.Error(), "free some space") || strings.Contains(refusal.Error(), "\n") {
			t.Errorf("a start on a full disk says %v", refusal)
		}
		res := proctest.Value(http.Post(d.URL+"/tend.v1.ProcessService/Start", "application/json", strings.NewReader(`{"spec":{"argv":["/bin/true"]}}`)))(t)
		res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("over HTTP it is answered with %s", res.Status)
		}
		free()
		proctest.Eventually(t, "a start is possible again", func() bool {
			_, err := d.c.Start(t.Context(), process.Spec{Argv: []string{"/bin/true"}})
			return err == nil
		})
	})

	t.Run("holds the exit back until the output before it is kept", func(t *testing.T) {
		p := proctest.Start(t, d.c, process.Spec{Shell: "read x; echo hello $x; exit 7", Stdin: process.StdinPipe})
		free := fill(t, disk)
		type outcome struct {
			text string
			exit *process.Exit
			err  error
		}
		done := make(chan outcome, 1)
		go func() {
			text, exit, err := collect(t.Context(), p)
			done <- outcome{text, exit, err}
		}()
		d.setOff(p)
		if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil || res.Exit.Code != 7 {
			t.Errorf("the process ended with %+v, %v", res, err)
		}
		if text, exit, err := func() (string, *process.Exit, error) {
			for ev, err := range process.Events(t.Context(), p, process.ReadOptions{NoFollow: true}) {
				if err != nil || ev.Kind == process.EventExited {
					return "", ev.Exit, err
				}
			}
			return "", nil, nil
		}(); err != nil || exit != nil {
			t.Errorf("who does not follow is told %q, %v, %v", text, exit, err)
		}
		free()
		if o := <-done; o.err != nil || o.text != "hello go\n" || o.exit == nil || o.exit.Code != 7 {
			t.Errorf("a reader got %q, %v, %v", o.text, o.exit, o.err)
		}
	})
	same()
}
