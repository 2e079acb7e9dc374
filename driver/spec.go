package driver

import (
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"time"
)

// ID names one sandbox and is never used again: a UUID in its usual form.
type ID string

// NewID returns a random ID (version 4).
func NewID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// Limits on what a [Spec] may hold.
const (
	MaxName     = 128     // bytes
	MaxEnv      = 4096    // variables
	MaxEnvBytes = 1 << 20 // names and values together
	MaxTTL      = 10 * 365 * 24 * time.Hour
	MaxMetadata = 64       // entries
	MaxValue    = 64 << 10 // bytes of one value of Metadata
)

// Spec says what to create. The zero value is a sandbox with all defaults.
type Spec struct {
	// Name is unique among the sandboxes. Empty: the driver makes one up. 1 to
	// MaxName letters, digits, '.', '_' or '-', the first a letter or digit.
	// Never in the form of an ID: an ID finds its own sandbox and no other.
	Name string
	// Snapshot is the ID or name of the snapshot whose files it starts with.
	Snapshot string
	Run      RunConfig
	// Env goes over Run.Env, also when that is changed later.
	Env map[string]string
	// Disposable: Stop removes the files of the sandbox's own directory.
	Disposable bool
	// IdleTTL stops the sandbox when nobody has used it and no process ran for
	// this long; DeleteAfterStop destroys it this long after it was stopped.
	// 0: never.
	IdleTTL, DeleteAfterStop time.Duration
	// Size is what the caller asks for; Info.Size is what the driver enforces.
	Size Size
	// Metadata is kept for the caller.
	Metadata map[string]string
}

// RunConfig is what processes of a sandbox get where they do not say.
type RunConfig struct {
	// User name; empty: the driver's default.
	User string
	// Dir is the working directory, absolute; empty: the sandbox's own.
	Dir string
	Env map[string]string
}

// Size of a sandbox; 0 is "no limit asked for".
type Size struct {
	CPUs   float64
	Memory int64 // bytes
	Disk   int64 // bytes
}

// State of a sandbox.
type State uint8

const (
	Starting State = iota
	Ready
	Stopped
	Failed
)

func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Ready:
		return "ready"
	case Stopped:
		return "stopped"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Info is what is known of a sandbox at one moment.
type Info struct {
	ID     ID
	Name   string
	State  State
	Reason string // of Failed
	Run    RunConfig
	// Env goes over Run.Env.
	Env        map[string]string
	Disposable bool
	// Dir is the working directory where Run.Dir names none.
	Dir                      string
	Snapshot                 string
	IdleTTL, DeleteAfterStop time.Duration
	Size                     Size // enforced; 0 where nothing is
	Created, Updated         time.Time
	StoppedAt                time.Time // zero unless Stopped
	Metadata                 map[string]string
}

// Change says what to change; nil fields stay as they are.
type Change struct {
	Name                     *string
	IdleTTL, DeleteAfterStop *time.Duration
	// Run replaces the fields that are set in it; Env is merged key by key.
	Run *RunConfig
	// Metadata is merged key by key.
	Metadata map[string]string
}

// SnapshotSpec says what to keep.
type SnapshotSpec struct {
	Name string
	Run  RunConfig
}

// Snapshot is what is known of a snapshot.
type Snapshot struct {
	ID      ID
	Name    string
	State   State
	Reason  string
	Sandbox ID
	Bytes   int64
	Created time.Time
}

// CheckName reports what is wrong with a name as an [*InvalidError], or nil.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), MaxName)}
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return &InvalidError{Field: "name", Reason: fmt.Sprintf("has %q at %d; letters and digits are allowed, and '.', '_', '-' after the first", c, i)}
		}
	}
	if LikeID(name) {
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("is %q, which has the form of an ID (a UUID); another sandbox could have it", name)}
	}
	return nil
}

// LikeID reports whether a string has the form of an [ID], in letters of any case.
func LikeID(s string) bool {
	if len(s) != len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
		return false
	}
	for i := range len(s) {
		switch c := s[i] | 0x20; { // lower case
		case i == 8 || i == 13 || i == 18 || i == 23:
			if s[i] != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
		default:
			return false
		}
	}
	return true
}

// Validate reports the first thing wrong with the spec as an [*InvalidError].
func (s *Spec) Validate() error {
	if s.Name != "" {
		if err := CheckName(s.Name); err != nil {
			return err
		}
	}
	if err := checkTTL("idle_ttl", s.IdleTTL); err != nil {
		return err
	}
	if err := checkTTL("delete_after_stop", s.DeleteAfterStop); err != nil {
		return err
	}
	if len(s.Snapshot) > MaxName || strings.IndexByte(s.Snapshot, 0) >= 0 {
		return &InvalidError{Field: "snapshot", Reason: fmt.Sprintf("has %d bytes or a NUL byte; at most %d are allowed, as of any ID or name", len(s.Snapshot), MaxName)}
	}
	if !(s.Size.CPUs >= 0) || math.IsInf(s.Size.CPUs, 1) || s.Size.Memory < 0 || s.Size.Disk < 0 {
		return &InvalidError{Field: "size", Reason: "is negative or no number; leave it out for no limit"}
	}
	if err := checkMetadata(s.Metadata); err != nil {
		return err
	}
	if err := CheckEnv("env", s.Env); err != nil {
		return err
	}
	return s.Run.Validate()
}

// Validate reports the first thing wrong with the change.
func (c *Change) Validate() error {
	if c.Name != nil {
		if err := CheckName(*c.Name); err != nil {
			return err
		}
	}
	for field, d := range map[string]*time.Duration{"idle_ttl": c.IdleTTL, "delete_after_stop": c.DeleteAfterStop} {
		if d != nil {
			if err := checkTTL(field, *d); err != nil {
				return err
			}
		}
	}
	if err := checkMetadata(c.Metadata); err != nil {
		return err
	}
	if c.Run == nil {
		return nil
	}
	return c.Run.Validate()
}

// Validate reports the first thing wrong with the configuration.
func (r *RunConfig) Validate() error {
	if len(r.User) > 256 || strings.IndexByte(r.User, 0) >= 0 {
		return &InvalidError{Field: "run.user", Reason: "is no user name"}
	}
	if r.Dir != "" && r.Dir[0] != '/' {
		return &InvalidError{Field: "run.dir", Reason: fmt.Sprintf("is %.80q; an absolute path is needed", r.Dir)}
	}
	if len(r.Dir) > 4095 || strings.IndexByte(r.Dir, 0) >= 0 {
		return &InvalidError{Field: "run.dir", Reason: "is longer than 4095 bytes or has a NUL byte"}
	}
	return CheckEnv("run.env", r.Env)
}

// CheckEnv reports what is wrong with an environment as an [*InvalidError]
// about field, or nil.
func CheckEnv(field string, env map[string]string) error {
	if len(env) > MaxEnv {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("has %d variables; the limit is %d", len(env), MaxEnv)}
	}
	total := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return &InvalidError{Field: field, Reason: fmt.Sprintf("has the name %.80q; a name is not empty and has no '=' and no NUL byte", k)}
		}
		if strings.IndexByte(v, 0) >= 0 {
			return &InvalidError{Field: field, Reason: fmt.Sprintf("has a NUL byte in the value of %.80q, which the kernel cannot pass on", k)}
		}
		total += len(k) + len(v)
	}
	if total > MaxEnvBytes {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("has %d bytes; the limit is %d", total, MaxEnvBytes)}
	}
	return nil
}

func checkTTL(field string, d time.Duration) error {
	if d < 0 || d > MaxTTL {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("is %v; 0 (never) to %v are allowed", d, MaxTTL)}
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > MaxMetadata {
		return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(m), MaxMetadata)}
	}
	for k, v := range m {
		if k == "" || len(k) > MaxName || len(v) > MaxValue {
			return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("has a name of %d and a value of %d bytes; the limits are %d and %d", len(k), len(v), MaxName, MaxValue)}
		}
	}
	return nil
}
