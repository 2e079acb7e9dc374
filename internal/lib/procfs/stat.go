// Package procfs reads what Linux says of processes and of its boot: the one
// place that knows the text of /proc/PID/stat and the boot clock. It allocates
// little, for the keeper looks at many processes at once.
package procfs

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all architectures
// that Go knows.
const Tick = 10 * time.Millisecond

// Stat has the used fields of /proc/PID/stat.
type Stat struct {
	State        byte // a letter: R, S, D, T, t, Z, X, …
	PPID         int
	Session      int
	TTY          int   // device number of the terminal; 0: none
	NoExec       bool  // it was forked, and has executed no program since
	Threads      int   // that have not ended, the first one always
	User, System int64 // processor time, in ticks
	Start        int64 // when it started, in ticks since the boot
}

// forkNoExec is PF_FORKNOEXEC of include/linux/sched.h, since Linux 2.6.
const forkNoExec = 0x40

// Dead reports whether the process has ended; it may be a zombie still. A process whose first
// thread alone has ended looks like one, and runs on.
func (s *Stat) Dead() bool {
	return s.Threads <= 1 && (s.State == 'Z' || s.State == 'X' || s.State == 'x')
}

// Stopped reports whether a signal or a tracer has stopped the process.
func (s *Stat) Stopped() bool { return s.State == 'T' || s.State == 't' }

// Started is when the process started, on the clock of BootTime in ns, rounded
// down to the tick.
func (s *Stat) Started() int64 { return s.Start * int64(Tick) }

// ParseStat reads the text of /proc/PID/stat. The second field is the program's
// name in parentheses and may hold anything, parentheses and spaces too: what
// follows the last ')' counts.
func ParseStat(b []byte) (s Stat, ok bool) {
	field := 2 // as in proc_pid_stat(5)
	for f := range bytes.FieldsSeq(b[bytes.LastIndexByte(b, ')')+1:]) {
		var err error
		switch field++; field {
		case 3:
			if len(f) != 1 || f[0] < 'A' || f[0] > 'z' {
				return Stat{}, false
			}
			s.State = f[0]
		case 4:
			s.PPID, err = strconv.Atoi(string(f))
		case 6:
			s.Session, err = strconv.Atoi(string(f))
		case 7:
			s.TTY, err = strconv.Atoi(string(f))
		case 9:
			var flags uint64
			flags, err = strconv.ParseUint(string(f), 10, 64)
			s.NoExec = flags&forkNoExec != 0
		case 14:
			s.User, err = strconv.ParseInt(string(f), 10, 64)
		case 15:
			s.System, err = strconv.ParseInt(string(f), 10, 64)
		case 20:
			s.Threads, err = strconv.Atoi(string(f))
		case 22:
			s.Start, err = strconv.ParseInt(string(f), 10, 64)
			return s, err == nil
		}
		if err != nil {
			return Stat{}, false
		}
	}
	return Stat{}, false
}

// StartedBefore reports whether a process that started then (see Stat.Started)
// surely did so before a time; 0 is not known.
func StartedBefore(started, at int64) bool { return started > 0 && started+int64(Tick) <= at }

// Unescape returns a path that is in the text of /proc/self/mountinfo.
func Unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
