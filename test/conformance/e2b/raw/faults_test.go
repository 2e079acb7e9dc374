//go:build linux

package raw

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/tend-run/tend/internal/gen/envd/process"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The faults of the original, one test each.

func TestNoKeepaliveIntervalEndsTheDaemon(t *testing.T) {
	t.Parallel()
	for _, interval := range []string{"0", "-1", "-9223372036854775808", "1000000000000000000", "99999999999999999999999", "NaN", "1.5", "", "\u0661", "0x10", "1e9"} {
		t.Run("interval "+strconv.Quote(interval), func(t *testing.T) {
			t.Parallel()
			codecs(t, func(t *testing.T, c codec) {
				s := shared.open(t, c, "Start", sh("echo begun; read x"), "Keepalive-Ping-Interval", interval).started(t)
				s.until(t, "begun")
				o := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}, "Keepalive-Ping-Interval", interval)
				s.finish(t)
				if err := o.all(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestKeepalivesComeAtTheIntervalAsked(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		s := shared.open(t, c, "Start", sh("exec sleep 60"), "Keepalive-Ping-Interval", "1").started(t)
		for range 2 {
			ev, err := s.next()
			if err != nil || ev.GetKeepalive() == nil {
				t.Fatalf("got %v, %v and not a keepalive", ev, err)
			}
		}
		shared.kill(t, s.pid)
		s.finish(t)
	})
}

// stalled opens a connection to a process and never reads from it. Its
// receive buffer is small, so that the server's writes block early.
func (d *daemon) stalled(t *testing.T, c codec, pid int) net.Conn {
	t.Helper()
	conn := proctest.Value(net.Dial("tcp", d.Addr()))(t)
	t.Cleanup(func() { conn.Close() })
	proctest.Must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	body := envelope(c.marshal(&pb.ConnectRequest{Process: byPID(pid)}))
	_ = proctest.Value(fmt.Fprintf(conn, "POST /process.Process/Connect HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+%s\r\nContent-Length: %d\r\n\r\n%s", c, len(body), body))(t)
	return conn
}

func TestAStalledSubscriberStallsNobody(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		dir := t.TempDir()
		// 32 MiB are far more than sockets and pipes hold.
		const lines = 2 << 20
		s := shared.open(t, c, "Start", sh(fmt.Sprintf(`while [ ! -e %s/go ]; do sleep 0.01; done; awk 'BEGIN { for (i = 0; i < %d; i++) printf "%%015d\n", i }'; echo done > %s/done`, dir, lines, dir))).started(t)
		for range 3 {
			shared.stalled(t, c, s.pid)
		}
		other := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}).started(t)
		proctest.Must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
		file(t, filepath.Join(dir, "done"))
		for _, reader := range []*stream{s, other} {
			reader.finish(t)
			if want := counted(0, lines); string(reader.stdout) != want {
				t.Errorf("a reader that reads got %d bytes of %d, or others", len(reader.stdout), len(want))
			}
		}
	})
}

func TestAThousandSubscribersThatNeverRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := shared.start(t, fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.01; done; head -c 4194304 /dev/zero; echo done > %s/done; exec sleep 60", dir, dir))
	for range 1000 {
		shared.stalled(t, inJSON, s.pid)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	file(t, filepath.Join(dir, "done"))
	if other := shared.start(t, "echo fine").finish(t); string(other.stdout) != "fine\n" {
		t.Errorf("another command says %q", other.stdout)
	}
	shared.kill(t, s.pid)
	s.finish(t)
	if len(s.stdout) != 4194304 {
		t.Errorf("the one that reads got %d bytes", len(s.stdout))
	}
}

func TestEveryTagIsFoundAndTheNewestWins(t *testing.T) {
	t.Parallel()
	streams := make(map[string]*stream)
	for i := range 6 {
		tag := fmt.Sprintf("tag-%d", i)
		streams[tag] = shared.open(t, inJSON, "Start", withTag(sh("exec sleep 60"), tag)).started(t)
	}
	for tag, s := range streams {
		if got := shared.connect(t, byTag(tag)).started(t).pid; got != s.pid {
			t.Errorf("%s is pid %d, want %d", tag, got, s.pid)
		}
	}
	newer := shared.open(t, inJSON, "Start", withTag(sh("exec sleep 60"), "tag-3")).started(t)
	if got := shared.connect(t, byTag("tag-3")).started(t).pid; got != newer.pid {
		t.Errorf("the tag of two is pid %d, want the newer, %d", got, newer.pid)
	}
	shared.kill(t, newer.pid)
	newer.finish(t)
	if got := shared.connect(t, byTag("tag-3")).started(t).pid; got != streams["tag-3"].pid {
		t.Errorf("with the newer gone the tag is pid %d, want %d", got, streams["tag-3"].pid)
	}
	for tag := range streams {
		shared.ok(t, "SendSignal", &pb.SendSignalRequest{Process: byTag(tag), Signal: pb.Signal_SIGNAL_SIGKILL}, nil)
	}
	status, f := shared.unary(t, inJSON, "SendSignal", &pb.SendSignalRequest{Process: byTag("no such tag"), Signal: pb.Signal_SIGNAL_SIGKILL}, nil)
	if status != 404 || f.Message != "process with tag no such tag not found" {
		t.Errorf("an unknown tag: %d, %v", status, f)
	}
}

func TestAGrandchildWithThePipeDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		path := filepath.Join(t.TempDir(), "pid")
		s := shared.open(t, c, "Start", sh("sleep 300 & echo $! > "+path+"; echo last words; exit 5")).started(t).finish(t)
		child := proctest.Value(strconv.Atoi(file(t, path)))(t)
		if s.end.GetExitCode() != 5 || string(s.stdout) != "last words\n" {
			t.Errorf("end %v, output %q", s.end, s.stdout)
		}
		// Had the stream waited for the pipe, the child would be gone.
		if !alive(child) {
			t.Error("the grandchild is gone")
		}
		if p, err := os.FindProcess(child); err == nil {
			p.Kill()
		}
	})
}

func TestLastWordsOnSIGTERMAreNeverLost(t *testing.T) {
	t.Parallel()
	const size = 200_000
	for i := range 30 {
		c := []codec{inJSON, inProto}[i%2]
		s := shared.open(t, c, "Start", sh(fmt.Sprintf(`trap 'head -c %d /dev/zero | tr "\0" x; exit 7' TERM; echo ready; while :; do sleep 0.01; done`, size))).started(t)
		s.until(t, "ready\n")
		shared.ok(t, "SendSignal", &pb.SendSignalRequest{Process: byPID(s.pid), Signal: pb.Signal_SIGNAL_SIGTERM}, nil)
		s.finish(t)
		if got := bytes.Count(s.stdout, []byte("x")); got != size || s.end.GetExitCode() != 7 {
			t.Errorf("run %d: %d bytes of %d, end %v", i, got, size, s.end)
		}
	}
}

func TestNoOutputIsLostWithoutASubscriber(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		dir := t.TempDir()
		s := shared.open(t, c, "Start", sh(fmt.Sprintf(`%s; echo oops >&2; echo done > %s/done`, counter(20000, "0"), dir))).started(t)
		s.res.Body.Close()
		file(t, filepath.Join(dir, "done"))
		replay := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}, "Tend-From", "0").started(t).finish(t)
		if string(replay.stdout) != counted(0, 20000) || string(replay.stderr) != "oops\n" {
			t.Errorf("replay has %d bytes and %q", len(replay.stdout), replay.stderr)
		}
		part := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}, "Tend-From", "stdout=160000,stderr=2").started(t).finish(t)
		if string(part.stdout) != counted(10000, 20000) || string(part.stderr) != "ps\n" {
			t.Errorf("replay from the middle has %d bytes and %q", len(part.stdout), part.stderr)
		}
		live := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}).started(t).finish(t)
		if len(live.stdout)+len(live.stderr) != 0 {
			t.Errorf("without the header it replays %q %q", live.stdout, live.stderr)
		}
		for _, from := range []string{"stdout=320001", "9999999"} {
			if f := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}, "Tend-From", from).refused(t); f.Code != "out_of_range" {
				t.Errorf("from %s: %v", from, f)
			}
		}
		for _, from := range []string{"-1", "stdout=-1", "stdout=x", "nope=1", "stdout"} {
			if f := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: byPID(s.pid)}, "Tend-From", from).refused(t); f.Code != "invalid_argument" {
				t.Errorf("from %s: %v", from, f)
			}
		}
	})
}

func TestConnectBeginsNowAndTellsWhere(t *testing.T) {
	t.Parallel()
	s := shared.open(t, inProto, "Start", withStdin(sh("echo before; read x; echo after; exit 2"))).started(t)
	s.until(t, "before\n")
	o := shared.connect(t, byPID(s.pid)).started(t)
	if got := o.res.Header.Get("Tend-Offset"); got != "stdout=7,stderr=0" {
		t.Errorf("Tend-Offset is %q", got)
	}
	if id := o.res.Header.Get("Tend-Id"); id == "" || id != s.res.Header.Get("Tend-Id") {
		t.Errorf("ids %q and %q", id, s.res.Header.Get("Tend-Id"))
	}
	shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: stdin("x\n")}, nil)
	o.finish(t)
	s.finish(t)
	if string(o.stdout) != "after\n" || string(s.stdout) != "before\nafter\n" {
		t.Errorf("connection %q, first %q", o.stdout, s.stdout)
	}
	if o.end.GetExitCode() != 2 {
		t.Errorf("end %v", o.end)
	}
}

func TestKillReachesTheTreeWhenAsked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pids")
	s := shared.start(t, fmt.Sprintf("(setsid sleep 300 & echo $! >> %s.new); sleep 300 & echo $! >> %s.new; mv %s.new %s; wait", path, path, path, path))
	pids := strings.Fields(file(t, path))
	shared.kill(t, s.pid, "Tend-Kill-Scope", "tree")
	s.finish(t)
	for _, text := range pids {
		pid := proctest.Value(strconv.Atoi(text))(t)
		proctest.Eventually(t, "all descendants to end", func() bool { return !alive(pid) })
	}
}

func TestAnySignalByHeader(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"INT": "int", "SIGUSR1": "usr1", "12": "usr2"} {
		s := shared.start(t, `trap 'echo int; exit' INT; trap 'echo usr1; exit' USR1; trap 'echo usr2; exit' USR2; echo ready; while :; do sleep 0.01; done`)
		s.until(t, "ready\n")
		shared.ok(t, "SendSignal", &pb.SendSignalRequest{Process: byPID(s.pid)}, nil, "Tend-Signal", header)
		if s.finish(t); !strings.HasSuffix(string(s.stdout), "\n"+want+"\n") {
			t.Errorf("%s: %q", header, s.stdout)
		}
	}
}

func TestCommandsAtOnceKeepApart(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			s, err := shared.tryOpen(t, inJSON, "Start", sh(fmt.Sprintf("seq %d %d; exit %d", i, i+100, i)))
			if err == nil {
				err = s.all()
			}
			if err != nil {
				t.Errorf("command %d: %v", i, err)
				return
			}
			var want strings.Builder
			for n := i; n <= i+100; n++ {
				fmt.Fprintln(&want, n)
			}
			if string(s.stdout) != want.String() || int(s.end.GetExitCode()) != i {
				t.Errorf("command %d: %q, end %v", i, s.stdout, s.end)
			}
		})
	}
	wg.Wait()
}

func TestABrokenClientHarmsNobody(t *testing.T) {
	t.Parallel()
	addr := shared.Addr()
	for name, text := range map[string]string{
		"half a request line":     "POST /process.Process/St",
		"half a header":           "POST /process.Process/Start HTTP/1.1\r\nHost: loc",
		"half a frame":            "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+proto\r\nContent-Length: 5000\r\n\r\n\x00\x00\x00",
		"a frame of 4 GiB":        "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+proto\r\nContent-Length: 5\r\n\r\n\x00\xff\xff\xff\xff",
		"a compressed lie":        "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+proto\r\nConnect-Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x01\x00\x00\x00\x04nope",
		"a message that is none":  "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+proto\r\nContent-Length: 9\r\n\r\n\x00\x00\x00\x00\x04\xff\xff\xff\xff",
		"JSON that is none":       "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nContent-Length: 9\r\n\r\n\x00\x00\x00\x00\x04{\"\xff:",
		"no frame at all":         "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nContent-Length: 0\r\n\r\n",
		"HTTP/2 preface and junk": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := proctest.Value(net.Dial("tcp", addr))(t)
			defer conn.Close()
			proctest.Value(conn.Write([]byte(text)))(t)
			// Half requests wait here; the others are answered or cut.
			if strings.HasPrefix(name, "half") {
				s := shared.start(t, "echo fine").finish(t)
				if string(s.stdout) != "fine\n" {
					t.Errorf("another command says %q", s.stdout)
				}
				return
			}
			proctest.Must(t, conn.SetReadDeadline(time.Now().Add(patience)))
			answer := make([]byte, 4096)
			n, err := conn.Read(answer)
			if err != nil && n == 0 && os.IsTimeout(err) {
				t.Error("no answer, no end")
			}
			if bytes.Contains(answer[:n], []byte(`"pid"`)) {
				t.Errorf("it started something: %q", answer[:n])
			}
		})
	}
}
