package driver

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// CheckName returns an [*InvalidError] if a name is invalid, or nil.
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
			return &InvalidError{Field: "name",
				Reason: fmt.Sprintf("has %q at %d; letters and digits are allowed, and '.', '_', '-' after the first", c, i)}
		}
	}
	if LikeID(name) {
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("is %q, which has the form of an ID; another sandbox could have it", name)}
	}
	return nil
}

// CheckTag returns an [*InvalidError] if the tag of a snapshot is invalid, or nil.
func CheckTag(tag string) error {
	for i, c := range []byte(tag) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', i > 0 && (c == '.' || c == '-'):
			continue
		}
		return &InvalidError{Field: "tag",
			Reason: fmt.Sprintf("has %q at %d; letters, digits and '_' are allowed, and '.', '-' after the first", c, i)}
	}
	if tag == "" || len(tag) > MaxName {
		return &InvalidError{Field: "tag", Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(tag), MaxName)}
	}
	return nil
}

// LikeID reports whether a string has the form of an [ID], in letters of any case.
func LikeID(s string) bool { return container.ID(strings.ToLower(s)).Validate() == nil }

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
	if len(s.Snapshot) > 2*MaxName || strings.IndexByte(s.Snapshot, 0) >= 0 {
		return &InvalidError{Field: "snapshot", Reason: fmt.Sprintf("has %d bytes or a NUL byte; at most %d are allowed, as of any ID or name",
			len(s.Snapshot), 2*MaxName)}
	}
	if err := s.Size.Validate(); err != nil {
		return err
	}
	if len(s.Template) > 2*MaxName || hasControl(s.Template) {
		return &InvalidError{Field: "template", Reason: fmt.Sprintf("has %d bytes or a control character; at most %d bytes are allowed",
			len(s.Template), 2*MaxName)}
	}
	if len(s.E2BTemplate) > 2*MaxName || hasControl(s.E2BTemplate) {
		return &InvalidError{Field: "e2b_template", Reason: fmt.Sprintf("has %d bytes or a control character; at most %d bytes are allowed",
			len(s.E2BTemplate), 2*MaxName)}
	}
	if s.Template != "" && s.Snapshot != "" {
		return &InvalidError{Field: "template", Reason: "cannot be given together with a snapshot; name one of them"}
	}
	if len(s.Image) > MaxImageName || hasControl(s.Image) {
		return &InvalidError{Field: "image", Reason: fmt.Sprintf("has %d bytes or a control character; at most %d bytes are allowed",
			len(s.Image), MaxImageName)}
	}
	if s.Image != "" && (s.Template != "" || s.Snapshot != "") {
		return &InvalidError{Field: "image", Reason: "cannot be given together with a template or a snapshot; name one of them"}
	}
	if s.Isolation > IsolationFull {
		return &InvalidError{Field: "isolation", Reason: fmt.Sprintf("is %v, which there is not", s.Isolation)}
	}
	if err := checkDeadline("deadline", &s.Deadline); err != nil {
		return err
	}
	if err := checkAction(&s.AtDeadline); err != nil {
		return err
	}
	if err := s.Network.Validate(); err != nil {
		return err
	}
	if err := checkShares(s.Shares); err != nil {
		return err
	}
	if err := checkVolumes(s.Volumes); err != nil {
		return err
	}
	if err := checkEntries("metadata", s.Metadata, MaxMetadata); err != nil {
		return err
	}
	if err := checkEntries("notes", s.Notes, MaxNotes); err != nil {
		return err
	}
	if err := CheckEnv("env", s.Env); err != nil {
		return err
	}
	return s.Run.Validate()
}

// The bounds of a Size: processors, bytes of memory, and processes with threads are those of
// a sandbox. MaxDisk bytes are more than any driver gives; each has its own bounds.
const (
	MinCPUs, MaxCPUs     = container.MinCPUs, container.MaxCPUs
	MinMemory, MaxMemory = container.MinMemory, container.MaxMemory
	MinTasks, MaxTasks   = container.MinTasks, container.MaxTasks
	MaxDisk              = 1 << 50
)

// Validate reports the first limit that is out of bounds as an [*InvalidError].
func (s Size) Validate() error {
	switch {
	case s.CPUs != 0 && !(s.CPUs >= MinCPUs && s.CPUs <= MaxCPUs): // not a number is neither
		return &InvalidError{Field: "size.cpus", Reason: fmt.Sprintf("is %v; 0 (no limit) or %v to %v are allowed", s.CPUs, MinCPUs, MaxCPUs)}
	case s.Memory != 0 && (s.Memory < MinMemory || s.Memory > MaxMemory):
		return &InvalidError{Field: "size.memory", Reason: fmt.Sprintf("is %d bytes; 0 (no limit) or %d to %d are allowed",
			s.Memory, MinMemory, int64(MaxMemory))}
	case s.Tasks != 0 && (s.Tasks < MinTasks || s.Tasks > MaxTasks):
		return &InvalidError{Field: "size.tasks", Reason: fmt.Sprintf("is %d; 0 (no limit) or %d to %d are allowed", s.Tasks, MinTasks, MaxTasks)}
	case s.Disk < 0 || s.Disk > MaxDisk:
		return &InvalidError{Field: "size.disk", Reason: fmt.Sprintf("is %d bytes; 0 (no limit) to %d are allowed", s.Disk, int64(MaxDisk))}
	}
	return nil
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
	if c.Deadline != nil && c.Extend != nil {
		return &InvalidError{Field: "extend", Reason: "cannot be given together with a deadline; name one of them"}
	}
	if err := checkDeadline("deadline", c.Deadline); err != nil {
		return err
	}
	if err := checkDeadline("extend", c.Extend); err != nil {
		return err
	}
	if err := checkAction(c.AtDeadline); err != nil {
		return err
	}
	if c.Network != nil {
		if err := c.Network.Validate(); err != nil {
			return err
		}
	}
	if err := checkEntries("metadata", c.Metadata, MaxMetadata); err != nil {
		return err
	}
	if err := checkEntries("notes", c.Notes, MaxNotes); err != nil {
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

// CheckEnv returns an [*InvalidError] about field if an environment is invalid, or nil.
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

// checkEntries takes the limits of one entry from those of metadata.
func checkEntries(field string, m map[string]string, most int) error {
	if len(m) > most {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("has %d entries; the limit is %d", len(m), most)}
	}
	for k, v := range m {
		if k == "" || len(k) > MaxName || len(v) > MaxValue {
			return &InvalidError{Field: field, Reason: fmt.Sprintf("has a name of %d and a value of %d bytes; the limits are %d and %d",
				len(k), len(v), MaxName, MaxValue)}
		}
	}
	return nil
}

func checkDeadline(field string, t *time.Time) error {
	if t != nil && (t.After(time.Now().Add(MaxTTL)) || !t.IsZero() && t.Year() < 1970) {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("is not between 1970 and %v from now", MaxTTL)}
	}
	return nil
}

func checkAction(a *Action) error {
	if a != nil && *a > ActionPause {
		return &InvalidError{Field: "at_deadline", Reason: fmt.Sprintf("is %v, which there is not", *a)}
	}
	return nil
}

// Validate reports the first thing wrong with the form of the network. A driver
// reads the rules.
func (n *Network) Validate() error {
	if n.Mode > NetworkOwn {
		return &InvalidError{Field: "network.mode", Reason: fmt.Sprintf("is %v, which there is not", n.Mode)}
	}
	for _, rules := range []struct {
		field string
		list  []string
	}{{"network.allow", n.Allow}, {"network.deny", n.Deny}} {
		if len(rules.list) > MaxRules {
			return &InvalidError{Field: rules.field, Reason: fmt.Sprintf("has %d entries; the limit is %d", len(rules.list), MaxRules)}
		}
		for _, r := range rules.list {
			if r == "" || len(r) > 300 || hasControl(r) {
				return &InvalidError{Field: rules.field,
					Reason: fmt.Sprintf("has %.80q; a host name, an address, a CIDR or \"~\" and an expression, of at most 300 bytes, is needed", r)}
			}
		}
		if len(rules.list) > 0 && n.Mode != NetworkDefault && n.Mode != NetworkOwn {
			return &InvalidError{Field: rules.field, Reason: fmt.Sprintf("has no meaning with the network %v", n.Mode)}
		}
	}
	return nil
}

func checkShares(shares []Share) error {
	if len(shares) > MaxShares {
		return &InvalidError{Field: "shares", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(shares), MaxShares)}
	}
	for _, s := range shares {
		if s.Copy && s.ReadOnly {
			return &InvalidError{Field: "shares.copy", Reason: "is for a directory that programs may change; it is read-only, too"}
		}
		for field, p := range map[string]string{"shares.source": s.Source, "shares.target": s.Target} {
			if p == "" && field == "shares.target" {
				continue
			}
			if !cleanPath(p) {
				return &InvalidError{Field: field,
					Reason: fmt.Sprintf("is %.80q; an absolute path without \"..\" of at most %d bytes, other than /, is needed", p, MaxPath)}
			}
		}
	}
	return nil
}

// cleanPath reports whether a path is absolute, of one spelling, and not the root.
func cleanPath(p string) bool {
	return len(p) <= MaxPath && strings.IndexByte(p, 0) < 0 && path.IsAbs(p) && path.Clean(p) == p && p != "/"
}

func hasControl(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0
}
