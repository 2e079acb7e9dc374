//go:build linux

package inside

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var streams = []attempt{
	{"opens its output again, and takes from it the modes, the room and the owner", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
signal.signal(signal.SIGIO, signal.SIG_IGN) # which it asks for below
fds = [tried(lambda: os.open("/proc/self/fd/%d" % n, how | os.O_NONBLOCK)) for n in (1, 2) for how in (os.O_RDWR, os.O_RDONLY,
    os.O_WRONLY | os.O_DIRECT)]
fds = [fd for fd in fds if isinstance(fd, int)]
print("holds", flush=True)
for fd in [1, 2] + fds:
    tried(lambda: fcntl.fcntl(fd, 1031, 4096)) # F_SETPIPE_SZ
    tried(lambda: fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid()))
    tried(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
    tried(lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
    tried(lambda: fcntl.ioctl(fd, 0x5452, struct.pack("i", 1))) # FIOASYNC
    tried(lambda: os.fchown(fd, 1000, 1000))
    tried(lambda: os.fchmod(fd, 0))
    tried(lambda: os.ftruncate(fd, 0))
    tried(lambda: os.utime(fd, (0, 0)))
sys.stdin.read()
for fd in fds: os.close(fd)
print("the end", flush=True)`)
		if got := end(t, p); !strings.HasSuffix(got, "the end\n") {
			t.Errorf("its output ends with %q", got)
		}
	}},
	{"gives its output pages that it goes on to change, of files that it cuts, of devices without an end", false, func(t *testing.T,
		w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
import mmap
print("holds", flush=True)
m = mmap.mmap(-1, 1 << 20)
m.write(b"a" * (1 << 20))
class iovec(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
base = ctypes.addressof(ctypes.c_char.from_buffer(m))
for gift in (0, 8):
    for n in range(64):
        tried(lambda: call(SYS_vmsplice, 1, iovec(base + (n << 12), 4096), 1, gift))
        ctypes.memset(base + (n << 12), 0x62, 4096)
f = open("/tmp/f", "w+b")
for n in range(64):
    f.truncate(1 << 20); f.seek(0)
    tried(lambda: os.splice(f.fileno(), 1, 65536))
    f.truncate(0)
for path in ("/dev/zero", "/dev/urandom", "/proc/self/maps"):
    fd = os.open(path, os.O_RDONLY)
    for n in range(16): tried(lambda: os.splice(fd, 1, 65536))
    for n in range(16): tried(lambda: os.sendfile(1, fd, None, 65536))
sys.stdin.read()
os.write(1, b"the end\n")`)
		if got := end(t, p); !strings.HasSuffix(got, "the end\n") {
			t.Errorf("its output ends with %q", got[max(0, len(got)-100):])
		}
	}},
	{"fills its own input, and makes the pipe small", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
fcntl.fcntl(0, 1031, 4096)
fd = os.open("/proc/self/fd/0", os.O_WRONLY | os.O_NONBLOCK)
while tried(lambda: os.write(fd, b"x" * 4096)) != "EAGAIN": pass
print("holds", flush=True)
time.sleep(1000)`)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the input is accepted, or not
		defer cancel()
		p.Write(ctx, process.Input{Data: make([]byte, 1<<20)})
		w.goesOn(t)
		proctest.Kill(t, p)
	}},
	{"turns its terminal into something else: stopped, raw, exclusive, of another discipline", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		spec := python("0:0", `
import termios
print("holds", flush=True)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for n in range(31): tried(lambda: fcntl.ioctl(0, 0x5423, struct.pack("i", n))) # TIOCSETD
tried(lambda: fcntl.ioctl(0, 0x5423, struct.pack("i", 0))) # TIOCSETD
tried(lambda: fcntl.ioctl(0, 0x540c, 0)) # TIOCEXCL
modes = termios.tcgetattr(0)
modes[0] |= termios.IXON | termios.IXOFF
modes[3] |= 0o200000 # EXTPROC
modes[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(0, termios.TCSANOW, modes)
tried(lambda: fcntl.ioctl(0, 0x5420, struct.pack("i", 1))) # TIOCPKT
tried(lambda: fcntl.ioctl(0, 0x5437, 0)) # TIOCVHANGUP
os.set_blocking(1, False)
tried(lambda: os.write(1, b"x" * (1 << 20)))
termios.tcflow(0, termios.TCOOFF)
tried(lambda: os.write(1, b"x" * (1 << 20)))
time.sleep(1000)`)
		spec.Stdin, spec.PTY = process.StdinNull, &process.Size{Cols: 80, Rows: 24}
		p := proctest.Start(t, programs(t, s), spec)
		proctest.Wait(t, p, process.Until{Match: "holds"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Resize(ctx, process.Resize{To: process.Size{Cols: 100, Rows: 30}}); err != nil {
			t.Errorf("it is resized: %v", err)
		}
		short, cancelShort := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancelShort()
		p.Write(short, process.Input{Data: make([]byte, 256<<10)})
		w.goesOn(t)
		proctest.Kill(t, p)
		proctest.Wait(t, p, process.Until{EOF: true})
	}},
	{"writes all that a terminal understands, and lines without an end, while somebody reads views of it", false, func(t *testing.T,
		w *world) {
		before := w.memory(t)
		s := w.sandbox(t)
		p := proctest.Start(t, programs(t, s), python("0:0", `
os.write(1, b"\x1b[31m\x1b]0;title\x07\x00\xff\xfe" * 1000)
for n in range(16): os.write(1, b"\x00" * (1 << 18))
os.write(1, b"\xf0\x9f" * (1 << 18))
os.write(2, b"the end\n")`))
		if res := proctest.Wait(t, p, process.Until{EOF: true}); res.Exit.Code != 0 {
			t.Errorf("it has ended with %+v", res.Exit)
		}
		proctest.WantOutput(t, p, process.Stderr, "the end\n")
		w.grewBy(t, before, 64<<20)
	}},
	{"ends by each signal, and says so", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		for _, sig := range []unix.Signal{unix.SIGSEGV, unix.SIGSYS, unix.SIGXCPU, unix.SIGUSR1, unix.SIGPIPE, 34, 64} {
			spec := python("1000:1000", `
n = int(sys.argv[1])
signal.signal(n, signal.SIG_DFL)
os.kill(os.getpid(), n)`)
			spec.Argv = append(spec.Argv, unixNumber(sig))
			p := proctest.Start(t, programs(t, s), spec)
			if exit := proctest.Wait(t, p, process.Until{EOF: true}).Exit; exit.Signal != int(sig) || exit.CoreDumped {
				t.Errorf("by signal %d it ends with %+v", sig, exit)
			}
		}
	}},
}
