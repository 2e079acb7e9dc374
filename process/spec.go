package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits on what a [Spec] may hold. The kernel's own limits on argv and
// environment (a few MiB, [ErrArgListTooLong]) come on top.
const (
	MaxArgs      = 1 << 16  // words of argv
	MaxEnv       = 1 << 16  // environment variables
	MaxSpecBytes = 8 << 20  // argv, environment, labels and names together
	MaxNameLen   = 256      // bytes of Name
	MaxTagLen    = 64 << 10 // bytes of Tag, of Dir and of User
	MaxLabels    = 64       // labels of one process
	MaxLabelsLen = 2 << 20  // bytes of their names and values together
	MaxRlimits   = 16       // resource limits of one process: the kernel has as many resources
	MaxTimeout   = 10 * 365 * 24 * time.Hour
	MaxTermSide  = 1<<16 - 1 // columns or rows of a terminal
	MaxRetention = int64(1) << 50
	MinRetention = int64(64) << 10
	MinCPUs      = 0.01
	MaxCPUs      = 4096
)

// Spec says what to start. The zero value of each field is its default.
type Spec struct {
	// ID makes Start idempotent: starting the same ID with an equal Spec
	// twice starts once; with another Spec it is [ErrExists]. Empty: a new ID.
	ID ID
	// Name is for people: the newest holder of a name is found by it.
	Name string
	// Tag is for programs (envd's tag): not unique, the newest holder wins.
	Tag string

	// Argv is the program and its arguments. A program without a slash is
	// looked up in the PATH of the process's own environment.
	Argv []string
	// Shell is a command line for /bin/sh -c, in place of Argv.
	Shell string

	// Env is laid over what Inherit brings; the keys here win.
	Env map[string]string
	// HiddenEnv names variables of Env, in order, which no [Info] has: those of the caller's own
	// environment, which may be secrets. They are kept as long as the process is. [EnvOf]
	// gives them to another one.
	HiddenEnv []string
	Inherit   Inherit
	// Dir is the working directory, absolute. Empty: the user's home.
	Dir string
	// User is a user name, "uid" or "uid:gid". Empty: the user tend runs as.
	// The process gets the user's primary and supplementary groups.
	User string

	Stdin StdinMode
	// PTY gives the process a terminal of this size instead of pipes; stdin
	// is then the terminal.
	PTY *Size

	// Timeout kills the tree this long after the start, with [CauseTimeout].
	// 0: never. At most MaxTimeout.
	Timeout time.Duration
	// TimeoutScope is what a timeout kills: the tree (default) or the leader.
	TimeoutScope Scope

	Limits    Limits
	Retention Retention
	// KillWithoutReaders kills the tree when no reader has followed its
	// output for this long (after at least one has, or since the start).
	// 0: the process is kept.
	KillWithoutReaders time.Duration

	Labels map[string]string
}

// Inherit says which environment a process gets before Spec.Env.
type Inherit uint8

const (
	// InheritUser: PATH of the daemon; HOME, USER and LOGNAME of the user.
	InheritUser Inherit = iota
	// InheritDaemon: the daemon's whole environment but TEND_TOKEN (for another
	// user: PATH, LANG, LC_*, TZ and TERM alone), with HOME, USER and
	// LOGNAME of the user.
	InheritDaemon
	// InheritNone: nothing.
	InheritNone
)

// StdinMode says what stdin of a process without a terminal is.
type StdinMode uint8

const (
	StdinNull StdinMode = iota // reads end of file at once
	StdinPipe                  // fed by Process.Write
)

// Size of a terminal in character cells. Zero is allowed and means unknown.
type Size struct{ Cols, Rows uint16 }

// Resize is a new size for a terminal.
type Resize struct {
	To Size
	// Only, if not nil, is the size that the terminal must have; with another
	// one it stays as it is. A client that leaves gives back the size that it
	// found, unless somebody has changed it since.
	Only *Size
}

// Scope says which processes a signal or a timeout reaches.
type Scope uint8

const (
	ScopeTree   Scope = iota // the process and all its descendants
	ScopeLeader              // the process alone
	ScopeGroup               // its process group
)

// Limits of a process. A limit that this machine cannot enforce makes Start
// fail with [ErrUnsupported]; it is never dropped in silence.
type Limits struct {
	Rlimits     []Rlimit
	Nice        int   // -20..19; 0: as the daemon
	OOMScoreAdj int   // -1000..1000; 0: the daemon's children's default
	MemoryMax   int64 // bytes, swap included, for the tree; 0: none
	PidsMax     int64 // tasks, for the tree; 0: none
	CPUWeight   int64 // of the tree, 1..10000; 0: the default of 100
	// CPUs is how many processors the tree may use at most, all its time together: 0.5 is
	// half of one. MinCPUs..MaxCPUs; 0: none.
	CPUs float64
}

// Rlimit is one resource limit, by the kernel's number (RLIMIT_NOFILE = 7). By
// RLIMIT_RTTIME (15) a kill finds descendants that have left cgroup, session and
// parents; a process that has a limit of its own there gives that up.
type Rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// Retention says how much output is kept, and for how long.
type Retention struct {
	// Limit is the number of bytes kept of each output stream. 0: the
	// daemon's default, and more while a reader is further behind.
	// MinRetention..MaxRetention.
	Limit int64
	// Policy at the limit.
	Policy RetentionPolicy
	// TTL is how long a finished process and its output are kept at most.
	// 0: the daemon's default.
	TTL time.Duration
	// Sync says what a loss of power may take.
	Sync Sync
	// Pin starts the process pinned: neither its TTL nor the daemon's budget
	// removes it once it has finished, until Process.Pin says otherwise.
	Pin bool
}

// Sync says when output and facts are forced to the disk (fsync). It is for a
// loss of power alone: no death of a program, tend's own included, takes
// anything with it that was written.
type Sync uint8

const (
	// SyncDefault is the daemon's default: SyncNone unless another is set.
	SyncDefault Sync = iota
	// SyncNone leaves it to the kernel, which writes back within about 30 s.
	SyncNone
	// SyncExit announces the exit only when it, and all output before it, is on
	// the disk. A process that has not ended may be lost as a whole.
	SyncExit
	// SyncInterval forces out what was written about once a second, and does
	// not make the announcement of the exit wait.
	SyncInterval
)

var syncNames = [...]string{"default", "none", "exit", "interval"}

func (s Sync) String() string {
	if int(s) < len(syncNames) {
		return syncNames[s]
	}
	return fmt.Sprintf("sync(%d)", uint8(s))
}

// RetentionPolicy says what happens when a stream reaches its limit.
type RetentionPolicy uint8

const (
	// DropOldest frees the head; readers behind it get a gap.
	DropOldest RetentionPolicy = iota
	// Block stops reading the pipe, so that the process blocks in write,
	// until a consumer frees the head with Process.Trim.
	Block
)

// Validate reports the first thing wrong with the spec as an [*InvalidError]
// that names the field and the limit, or nil. It checks form only: whether the
// program, directory and user exist is found out by Start.
func (s *Spec) Validate() error {
	if s.ID != "" {
		if err := s.ID.Validate(); err != nil {
			return err
		}
	}
	if (len(s.Argv) == 0) == (s.Shell == "") {
		if s.Shell != "" {
			return invalid("argv", "is given together with shell; give one of them")
		}
		return invalid("argv", "is empty; name a program, or give a shell line")
	}
	if len(s.Argv) > 0 && s.Argv[0] == "" {
		return invalid("argv[0]", "is empty; name a program")
	}
	if len(s.Argv) > MaxArgs {
		return invalid("argv", fmt.Sprintf("has %d words; the limit is %d", len(s.Argv), MaxArgs))
	}
	if len(s.Env) > MaxEnv {
		return invalid("env", fmt.Sprintf("has %d variables; the limit is %d", len(s.Env), MaxEnv))
	}
	if len(s.Labels) > MaxLabels {
		return invalid("labels", fmt.Sprintf("has %d entries; the limit is %d", len(s.Labels), MaxLabels))
	}
	for _, f := range []struct {
		name, v string
		most    int
	}{{"name", s.Name, MaxNameLen}, {"tag", s.Tag, MaxTagLen}, {"dir", s.Dir, MaxTagLen}, {"user", s.User, MaxTagLen}} {
		if len(f.v) > f.most {
			return invalid(f.name, fmt.Sprintf("has %d bytes; the limit is %d", len(f.v), f.most))
		}
	}
	if len(s.HiddenEnv) > MaxEnv {
		return invalid("hidden_env", fmt.Sprintf("has %d names; the limit is %d", len(s.HiddenEnv), MaxEnv))
	}
	total, labels := len(s.Shell)+len(s.Dir)+len(s.User)+len(s.Tag), 0
	for i, a := range s.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return invalid(fmt.Sprintf("argv[%d]", i), "has a NUL byte, which the kernel cannot pass on")
		}
		total += len(a) + 1
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return invalid("env", fmt.Sprintf("has the name %q; a name is not empty and has no '=' and no NUL byte", k))
		}
		if strings.IndexByte(v, 0) >= 0 {
			return invalid("env["+k+"]", "has a NUL byte, which the kernel cannot pass on")
		}
		total += len(k) + len(v) + 2
	}
	for k, v := range s.Labels {
		if k == "" || strings.IndexByte(k, 0) >= 0 {
			return invalid("labels", fmt.Sprintf("has the name %q; a name is not empty and has no NUL byte", k))
		}
		labels += len(k) + len(v)
	}
	if labels > MaxLabelsLen {
		return invalid("labels", fmt.Sprintf("have %d bytes together; the limit is %d", labels, MaxLabelsLen))
	}
	if total += labels; total > MaxSpecBytes {
		return invalid("argv and env", fmt.Sprintf("(with labels and names) have %d bytes together; the limit is %d", total, MaxSpecBytes))
	}
	for _, f := range []struct{ name, v string }{{"shell", s.Shell}, {"dir", s.Dir}, {"user", s.User}, {"name", s.Name}, {"tag", s.Tag}} {
		if strings.IndexByte(f.v, 0) >= 0 {
			return invalid(f.name, "has a NUL byte")
		}
	}
	if s.Dir != "" && s.Dir[0] != '/' {
		return invalid("dir", fmt.Sprintf("is %q; an absolute path is needed", s.Dir))
	}
	if s.Timeout < 0 || s.Timeout > MaxTimeout {
		return invalid("timeout", fmt.Sprintf("is %v; 0 (none) to %v are allowed", s.Timeout, MaxTimeout))
	}
	if s.KillWithoutReaders < 0 || s.KillWithoutReaders > MaxTimeout {
		return invalid("kill_without_readers", fmt.Sprintf("is %v; 0 (never) to %v are allowed", s.KillWithoutReaders, MaxTimeout))
	}
	if s.Inherit > InheritNone || s.Stdin > StdinPipe || s.TimeoutScope > ScopeGroup || s.Retention.Policy > Block ||
		s.Retention.Sync > SyncInterval {
		return invalid("spec", "has an unknown value in inherit, stdin, timeout_scope, retention.policy or retention.sync")
	}
	if err := s.Retention.validate(); err != nil {
		return err
	}
	return s.Limits.validate()
}

func (r *Retention) validate() error {
	if r.Limit != 0 && (r.Limit < MinRetention || r.Limit > MaxRetention) {
		return invalid("retention.limit", fmt.Sprintf("is %d bytes; 0 (the default) or %d to %d are allowed", r.Limit,
			MinRetention, MaxRetention))
	}
	if r.TTL < 0 || r.TTL > MaxTimeout {
		return invalid("retention.ttl", fmt.Sprintf("is %v; 0 (the default) to %v are allowed", r.TTL, MaxTimeout))
	}
	return nil
}

func (l *Limits) validate() error {
	switch {
	case l.Nice < -20 || l.Nice > 19:
		return invalid("limits.nice", fmt.Sprintf("is %d; -20 to 19 are allowed", l.Nice))
	case l.OOMScoreAdj < -1000 || l.OOMScoreAdj > 1000:
		return invalid("limits.oom_score_adj", fmt.Sprintf("is %d; -1000 to 1000 are allowed", l.OOMScoreAdj))
	case l.MemoryMax < 0:
		return invalid("limits.memory_max", "is negative; give bytes, or 0 for none")
	case l.PidsMax < 0:
		return invalid("limits.pids_max", "is negative; give a number of tasks, or 0 for none")
	case l.CPUWeight < 0 || l.CPUWeight > 10000:
		return invalid("limits.cpu_weight", fmt.Sprintf("is %d; 1 to 10000 are allowed, 0 for the default", l.CPUWeight))
	case l.CPUs != 0 && !(l.CPUs >= MinCPUs && l.CPUs <= MaxCPUs): // not a number is neither
		return invalid("limits.cpus", fmt.Sprintf("is %v; 0 (none) or %v to %v are allowed", l.CPUs, MinCPUs, MaxCPUs))
	}
	if len(l.Rlimits) > MaxRlimits {
		return invalid("limits.rlimits", fmt.Sprintf("has %d entries; the limit is %d", len(l.Rlimits), MaxRlimits))
	}
	for i, r := range l.Rlimits {
		if r.Resource < 0 || r.Resource > 15 {
			return invalid(fmt.Sprintf("limits.rlimits[%d].resource", i), fmt.Sprintf("is %d; 0 to 15 are allowed", r.Resource))
		}
		if r.Soft > r.Hard {
			return invalid(fmt.Sprintf("limits.rlimits[%d]", i), "has a soft limit above the hard limit")
		}
	}
	return nil
}

// Command returns the command as a person would read it: the words of Argv,
// quoted where a shell would need it, or the shell line.
func (s *Spec) Command() string {
	if s.Shell != "" {
		return s.Shell
	}
	var b strings.Builder
	for i, a := range s.Argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.IndexFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r))
		}) < 0 {
			b.WriteString(a)
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}

// Equal reports whether two specs ask for the same process. The ID counts too.
func (s *Spec) Equal(o *Spec) bool {
	if (s.PTY == nil) != (o.PTY == nil) || s.PTY != nil && *s.PTY != *o.PTY {
		return false
	}
	return s.ID == o.ID && s.Name == o.Name && s.Tag == o.Tag && s.Shell == o.Shell &&
		slices.Equal(s.Argv, o.Argv) && maps.Equal(s.Env, o.Env) && slices.Equal(s.HiddenEnv, o.HiddenEnv) && s.Inherit == o.Inherit &&
		s.Dir == o.Dir && s.User == o.User && s.Stdin == o.Stdin &&
		s.Timeout == o.Timeout && s.TimeoutScope == o.TimeoutScope &&
		slices.Equal(s.Limits.Rlimits, o.Limits.Rlimits) &&
		s.Limits.Nice == o.Limits.Nice && s.Limits.OOMScoreAdj == o.Limits.OOMScoreAdj &&
		s.Limits.MemoryMax == o.Limits.MemoryMax && s.Limits.PidsMax == o.Limits.PidsMax &&
		s.Limits.CPUWeight == o.Limits.CPUWeight && s.Limits.CPUs == o.Limits.CPUs && s.Retention == o.Retention &&
		s.KillWithoutReaders == o.KillWithoutReaders && maps.Equal(s.Labels, o.Labels)
}

// Shown is the spec as an [Info] has it: without what HiddenEnv names.
func (s *Spec) Shown() Spec {
	shown := *s
	if len(s.HiddenEnv) > 0 {
		shown.HiddenEnv, shown.Env = nil, maps.Clone(s.Env)
		maps.DeleteFunc(shown.Env, func(k, _ string) bool { return slices.Contains(s.HiddenEnv, k) })
	}
	return shown
}

func invalid(field, reason string) error { return &InvalidError{Field: field, Reason: reason} }
