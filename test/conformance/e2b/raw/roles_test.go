//go:build linux

package raw

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/tend-run/tend/internal/gen/envd/process"

	"github.com/tend-run/tend/internal/support/proctest"
)

// follow reads a process to its end. Whenever the stream is cut, it connects again
// at the offset reached. It returns how often that was.
func (d *daemon) follow(t *testing.T, s *stream, c codec, pid int, got *[]byte, progress *atomic.Int64) (cuts int, end *pb.ProcessEvent_EndEvent, err error) {
	deadline := time.Now().Add(2 * patience)
	for {
		base := len(*got)
		for err == nil && s != nil {
			_, err = s.next()
			*got = append((*got)[:base], s.stdout...)
			progress.Store(int64(len(*got)))
		}
		if s != nil && s.end != nil {
			return cuts, s.end, nil
		}
		var f *failure
		if errors.As(err, &f) && f.Code != "unavailable" {
			return cuts, nil, err
		}
		if time.Now().After(deadline) {
			return cuts, nil, fmt.Errorf("no way back: %w", err)
		}
		if s != nil {
			cuts++
		}
		time.Sleep(10 * time.Millisecond)
		s, err = d.tryOpen(t, c, "Connect", &pb.ConnectRequest{Process: byPID(pid)}, "Tend-From", "stdout="+strconv.Itoa(len(*got)))
	}
}

// TestKillingARoleLosesNothing kills each role with SIGKILL in the middle of
// a stream. The process continues, readers that resume at their offset get
// every byte once, and it stays listed and killable.
func TestKillingARoleLosesNothing(t *testing.T) {
	t.Parallel()
	const lines = 20_000
	for _, role := range []string{"server", "keeper", "anchor"} {
		for _, c := range []codec{inJSON, inProto} {
			t.Run(fmt.Sprintf("%s, read in %s", role, c), func(t *testing.T) {
				t.Parallel()
				d := own(t)
				idle := d.open(t, c, "Start", withTag(sh("exec sleep 300"), "idle")).started(t)
				typed := d.open(t, c, "Start", withStdin(sh("cat"))).started(t)
				s := d.open(t, c, "Start", sh(counter(lines, "0.02")+"; exit 6")).started(t)

				var got []byte
				var progress atomic.Int64
				var cuts int
				var end *pb.ProcessEvent_EndEvent
				var err error
				var wg sync.WaitGroup
				wg.Go(func() { cuts, end, err = d.follow(t, s, c, s.pid, &got, &progress) })
				proctest.Eventually(t, "a tenth of the output", func() bool { return progress.Load() > lines*16/10 })
				d.kill9(t, role)
				wg.Wait()

				if err != nil {
					t.Fatalf("after %d bytes: %v", len(got), err)
				}
				if string(got) != counted(0, lines) {
					t.Errorf("%d bytes of %d, or others", len(got), lines*16)
				}
				if (cuts > 0) != (role == "server") {
					t.Errorf("the stream was cut %d times; it ends with the server alone", cuts)
				}
				if end.GetExitCode() != 6 {
					t.Errorf("end is %v", end)
				}
				if p := d.listed(t, idle.pid); p.GetTag() != "idle" {
					t.Errorf("the idle process is listed as %v", p)
				}
				d.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(typed.pid), Input: stdin("after")}, nil)
				d.ok(t, "CloseStdin", &pb.CloseStdinRequest{Process: byPID(typed.pid)}, nil)
				again := d.connect(t, byPID(typed.pid), "Tend-From", "0").started(t).finish(t)
				if string(again.stdout) != "after" || again.end.GetExitCode() != 0 {
					t.Errorf("input after the kill: %q, end %v", again.stdout, again.end)
				}
				d.kill(t, idle.pid)
				proctest.Eventually(t, "the killed process to end", func() bool { return !alive(idle.pid) })
				if late := d.connect(t, byTag("idle")).started(t).finish(t); late.end.GetStatus() != "signal: killed" {
					t.Errorf("its end is %v", late.end)
				}
				if s := d.start(t, "echo new").finish(t); string(s.stdout) != "new\n" {
					t.Errorf("a new command says %q", s.stdout)
				}
			})
		}
	}
}

// TestAnExitWhileTheServerIsAwayIsReported covers processes that end between two
// servers, fifty at once.
func TestAnExitWhileTheServerIsAwayIsReported(t *testing.T) {
	t.Parallel()
	d := own(t)
	var streams []*stream
	for i := range 50 {
		streams = append(streams, d.start(t, fmt.Sprintf("sleep 0.%02d; echo %d; exit %d", i, i, i)))
	}
	d.kill9(t, "server")
	for i, s := range streams {
		late := d.connect(t, byPID(s.pid), "Tend-From", "0").started(t).finish(t)
		if int(late.end.GetExitCode()) != i || string(late.stdout) != fmt.Sprintf("%d\n", i) {
			t.Errorf("process %d: %q, end %v", i, late.stdout, late.end)
		}
	}
}

// TestTheTimeoutHoldsWithoutTheServer covers lifetimes that end while no
// server is there to end them.
func TestTheTimeoutHoldsWithoutTheServer(t *testing.T) {
	t.Parallel()
	d := own(t)
	s := d.start(t, "exec sleep 300", "Connect-Timeout-Ms", "1500")
	d.kill9(t, "server")
	proctest.Eventually(t, "the process to end", func() bool { return !alive(s.pid) })
}

// TestNoConnectionIsRefusedWhileTheServerIsReplaced dials all the time: the
// listening socket stays when the server goes.
func TestNoConnectionIsRefusedWhileTheServerIsReplaced(t *testing.T) {
	t.Parallel()
	d := own(t)
	stop := make(chan struct{})
	var dials, refused atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			conn, err := net.Dial("tcp", d.Addr())
			dials.Add(1)
			if err != nil {
				refused.Add(1)
			} else {
				conn.Close()
			}
			time.Sleep(time.Millisecond)
		}
	})
	for range 3 {
		d.kill9(t, "server")
	}
	close(stop)
	wg.Wait()
	if refused.Load() > 0 {
		t.Errorf("%d of %d connections were refused", refused.Load(), dials.Load())
	}
}

// TestSettingsOutliveTheServer: what /init set is in force after a restart.
func TestSettingsOutliveTheServer(t *testing.T) {
	t.Parallel()
	d := own(t)
	server := d.Roles()["server"]
	status, text := d.Post(t, "/init", `{"envVars":{"KEPT":"yes"},"accessToken":"secret-1"}`)
	if status != 204 {
		t.Fatalf("init answers %d %q", status, text)
	}
	proctest.Must(t, syscall.Kill(server, syscall.SIGKILL))
	proctest.Eventually(t, "the old server to end", func() bool { return !alive(server) })
	status, text = d.get(t, "/envs", "X-Access-Token", "secret-1")
	if status != 200 || !strings.Contains(text, `"KEPT":"yes"`) {
		t.Errorf("envs answers %d %q", status, text)
	}
	if status, _ := d.get(t, "/envs"); status != 401 {
		t.Errorf("without the token envs answers %d", status)
	}
}
