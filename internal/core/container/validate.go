package container

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
)

// Validate reports the first thing wrong with the spec as a *process.InvalidError,
// or nil. It checks form only.
func (s *Spec) Validate() error {
	if err := s.ID.Validate(); err != nil {
		return err
	}
	if err := checkHostname(s.Hostname); err != nil {
		return err
	}
	if err := checkPath("dir", s.Dir); err != nil {
		return err
	}
	if s.Disk != "" {
		if err := checkPath("disk", s.Disk); err != nil {
			return err
		}
	}
	switch {
	case len(s.Layers) > MaxLayers:
		return invalid("layers", fmt.Sprintf("has %d entries; the limit is %d", len(s.Layers), MaxLayers))
	case len(s.Hide) > MaxHide:
		return invalid("hide", fmt.Sprintf("has %d entries; the limit is %d", len(s.Hide), MaxHide))
	case len(s.Show) > MaxShow:
		return invalid("show", fmt.Sprintf("has %d entries; the limit is %d", len(s.Show), MaxShow))
	case len(s.Copies) > MaxCopies:
		return invalid("copies", fmt.Sprintf("has %d entries; the limit is %d", len(s.Copies), MaxCopies))
	case len(s.Copies)+len(s.Layers) > MaxLayers:
		return invalid("copies", fmt.Sprintf("has %d entries, and layers %d; together %d are the limit", len(s.Copies), len(s.Layers), MaxLayers))
	case len(s.Binds) > MaxBinds:
		return invalid("binds", fmt.Sprintf("has %d entries; the limit is %d", len(s.Binds), MaxBinds))
	case s.Base > BaseNone:
		return invalid("base", "is unknown")
	case s.Base == BaseNone && len(s.Layers) == 0:
		return invalid("layers", "is empty; without a base, a layer with a whole root is needed")
	case s.Base == BaseNone && len(s.Hide) > 0:
		return invalid("hide", "is for the base of this machine; without a base, leave it empty")
	case s.Base == BaseNone && len(s.Show) > 0:
		return invalid("show", "is for the base of this machine; without a base, leave it empty")
	case s.Net > NetHost:
		return invalid("net", "is unknown")
	case s.UIDBase != 0 && (s.UIDBase < IDs || s.UIDBase > math.MaxUint32-IDs):
		return invalid("uid_base", fmt.Sprintf("is %d; 0 (the keeper's own user), or %d to %d are allowed", s.UIDBase, IDs,
			uint32(math.MaxUint32-IDs)))
	}
	for i, l := range s.Layers {
		if err := checkPath(fmt.Sprintf("layers[%d]", i), l); err != nil {
			return err
		}
	}
	for i, h := range s.Hide {
		if err := checkPath(fmt.Sprintf("hide[%d]", i), h); err != nil {
			return err
		}
	}
	for i, p := range s.Show {
		if why := CheckShown(p); why != "" {
			return invalid(fmt.Sprintf("show[%d]", i), why)
		}
	}
	for i, c := range s.Copies {
		if err := checkPath(fmt.Sprintf("copies[%d].source", i), c.Source); err != nil {
			return err
		}
		if err := checkTarget(fmt.Sprintf("copies[%d].target", i), c.Target); err != nil {
			return err
		}
		if strings.ContainsAny(c.Source+c.Target, ",:\\") {
			return invalid(fmt.Sprintf("copies[%d]", i),
				fmt.Sprintf("is %.200q at %.200q; a comma, a colon and a backslash cannot stand in it", c.Source, c.Target))
		}
	}
	for i, b := range s.Binds {
		if err := checkPath(fmt.Sprintf("binds[%d].source", i), b.Source); err != nil {
			return err
		}
		if err := checkTarget(fmt.Sprintf("binds[%d].target", i), b.Target); err != nil {
			return err
		}
	}
	return s.Limits.Validate()
}

// ours are the places inside that a container brings itself.
var ours = []string{"/proc", "/sys", "/dev"}

func checkTarget(field, target string) error {
	if err := checkPath(field, target); err != nil {
		return err
	}
	for _, own := range ours {
		if target == own || strings.HasPrefix(target, own+"/") {
			return invalid(field, fmt.Sprintf("is %q; %s is the sandbox's own", target, own))
		}
	}
	return nil
}

// checkPath: an absolute path of one spelling, which is not the root.
func checkPath(field, p string) error {
	switch {
	case len(p) > MaxPath:
		return invalid(field, fmt.Sprintf("has %d bytes; the limit is %d", len(p), MaxPath))
	case strings.IndexByte(p, 0) >= 0:
		return invalid(field, "has a NUL byte")
	case p == "" || p[0] != '/':
		return invalid(field, fmt.Sprintf("is %.200q; an absolute path is needed", p))
	case path.Clean(p) != p:
		return invalid(field, fmt.Sprintf("is %.200q; write it as %.200q", p, path.Clean(p)))
	case p == "/":
		return invalid(field, "is the root directory")
	}
	return nil
}

func checkHostname(h string) error {
	if len(h) > 64 {
		return invalid("hostname", fmt.Sprintf("has %d bytes; the limit is 64", len(h)))
	}
	for i := 0; i < len(h); i++ {
		c := h[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '-' || c == '.')) {
			return invalid("hostname", fmt.Sprintf("has the byte %q at %d; letters and digits are allowed, and '-', '.' after the first", c, i))
		}
	}
	return nil
}

// Smallest and largest limits.
const (
	MinMemory = 1 << 20
	MaxMemory = 1 << 50
	MinTasks  = 2
	MaxTasks  = 1 << 22 // the kernel's own
	MinCPUs   = 0.01
	MaxCPUs   = 4096
)

// Validate reports the first thing wrong as a *process.InvalidError, or nil.
func (l *Limits) Validate() error {
	switch {
	case l.Memory != 0 && (l.Memory < MinMemory || l.Memory > MaxMemory):
		return invalid("limits.memory", fmt.Sprintf("is %d bytes; 0 (none) or %d to %d are allowed", l.Memory, MinMemory, int64(MaxMemory)))
	case l.Tasks != 0 && (l.Tasks < MinTasks || l.Tasks > MaxTasks):
		return invalid("limits.tasks", fmt.Sprintf("is %d; 0 (none) or %d to %d are allowed", l.Tasks, MinTasks, MaxTasks))
	case l.CPUs != 0 && !(l.CPUs >= MinCPUs && l.CPUs <= MaxCPUs): // not a number is neither
		return invalid("limits.cpus", fmt.Sprintf("is %v; 0 (none) or %v to %v are allowed", l.CPUs, MinCPUs, float64(MaxCPUs)))
	}
	return nil
}

// Equal reports whether two specs ask for the same container.
func (s *Spec) Equal(o *Spec) bool {
	return s.ID == o.ID && s.Hostname == o.Hostname && s.Dir == o.Dir && s.Disk == o.Disk && slices.Equal(s.Layers, o.Layers) &&
		s.Base == o.Base && slices.Equal(s.Hide, o.Hide) && slices.Equal(s.Show, o.Show) &&
		slices.Equal(s.Binds, o.Binds) && slices.Equal(s.Copies, o.Copies) && s.UIDBase == o.UIDBase &&
		s.Net == o.Net && s.Limits == o.Limits && s.Harden == o.Harden && s.Volatile == o.Volatile
}

func invalid(field, reason string) error {
	return &process.InvalidError{Field: field, Reason: reason}
}
