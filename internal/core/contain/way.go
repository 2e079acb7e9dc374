//go:build linux && (amd64 || arm64)

package contain

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/process"
)

// way is how containers are made. Empty parts are found by trying.
type way struct {
	ids     string // how many a container has
	owners  string // of the machine's files: idmap: their own; nobody, inside
	attach  string // handed: the keeper attaches; path: the child does
	devices string // made, or bound from the machine
	proc    string // inside: the child mounts it; handed: before it enters the user namespace; shared: it is that of tend itself
}

const (
	idsOne       = "1"
	idsMany      = "65536"
	ownersIDMap  = "idmap"
	ownersNobody = "nobody"
	attachHanded = "handed"
	attachPath   = "path"
	devicesMade  = "made"
	devicesBound = "bound"
	procInside   = "inside"
	procHanded   = "handed"
	procShared   = "shared"
)

// Force has containers made in this way: "ids=1,owners=nobody". It is called before all other methods.
func (m *Maker) Force(text string) error {
	var w way
	parts := map[string]struct {
		to     *string
		values []string
	}{
		"ids": {&w.ids, []string{idsOne, idsMany}}, "owners": {&w.owners, []string{ownersIDMap, ownersNobody}},
		"attach": {&w.attach, []string{attachHanded, attachPath}}, "devices": {&w.devices, []string{devicesMade, devicesBound}},
		"proc": {&w.proc, []string{procInside, procHanded, procShared}},
	}
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			return nil
		}
		name, value, _ := strings.Cut(part, "=")
		p, ok := parts[name]
		if !ok || !slices.Contains(p.values, value) {
			return fmt.Errorf("%s has %q; known are ids=1, ids=65536, owners=idmap, owners=nobody, attach=handed, attach=path, "+
				"devices=made, devices=bound, proc=inside, proc=handed and proc=shared: %w",
				container.WayVariable, part, process.ErrUnsupported)
		}
		*p.to = value
	}
	one := w.ids == idsOne || w.ids == "" && os.Geteuid() != 0
	switch {
	case w.ids == idsMany && os.Geteuid() != 0:
		return fmt.Errorf("%s: 65536 ids of a sandbox take root: %w", container.WayVariable, process.ErrUnsupported)
	case one && (w.owners == ownersIDMap || w.attach == attachHanded || w.devices == devicesMade):
		return fmt.Errorf("%s: with one id owners are nobody, the parts are attached by path, and devices are bound: %w", container.WayVariable, process.ErrUnsupported)
	case w.attach == attachPath && (w.owners == ownersIDMap || w.devices == devicesMade || w.proc == procHanded):
		return fmt.Errorf("%s: where parts are attached by path owners are nobody, devices bound, and no /proc is handed: %w", container.WayVariable, process.ErrUnsupported)
	case one && w.proc == procHanded:
		return fmt.Errorf("%s: a /proc is handed only with 65536 ids: %w", container.WayVariable, process.ErrUnsupported)
	}
	m.forced = w
	return nil
}

// find decides once how many ids containers have: what root of the machine may do is tried. Root of a
// user namespace has as few ids as an ordinary user. Root of the machine never gets containers with one
// id by itself: it would be root of the machine.
func (m *Maker) find() error {
	m.finding.Lock()
	defer m.finding.Unlock()
	if m.found {
		return nil
	}
	one := os.Geteuid() != 0 || m.forced.ids == idsOne
	byPath := !one && m.forced.attach == attachPath
	if !one && m.forced.attach == "" && !(ofTheMachine() && spawn.Admin()) {
		m.parts.mu.Lock()
		defer m.parts.mu.Unlock()
		err := m.parts.tryMany()
		if err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
		if err != nil && m.parts.tryUsers() == nil {
			byPath = true
		} else if err != nil {
			one = !ofTheMachine() && m.forced.ids == ""
		}
	}
	m.rootless, m.byPath, m.parts.rootless, m.parts.byPath = one, byPath, one, byPath
	m.parts.owners, m.parts.devices = m.forced.owners, m.forced.devices
	m.proc = cmp.Or(m.forced.proc, procInside)
	m.found = true
	return nil
}

// procWay is where containers get their /proc from.
func (m *Maker) procWay() string {
	m.finding.Lock()
	defer m.finding.Unlock()
	return m.proc
}

// otherProc takes the next way to a /proc if a container could not be made for want of one in the way
// tried, and reports whether there is one to try. In a user namespace the kernel mounts proc only
// where nothing lies over parts of the machine's, as it does in most containers.
func (m *Maker) otherProc(tried string, err error) bool {
	var e *spawn.ListError
	if m.forced.proc != "" || !errors.As(err, &e) || !strings.HasPrefix(e.What, stepProc) {
		return false
	}
	m.finding.Lock()
	defer m.finding.Unlock()
	switch {
	case m.proc != tried: // another container has found it
	case tried == procInside && !m.paths():
		m.proc = procHanded
	case tried != procShared:
		m.proc = procShared
	default:
		return false
	}
	return true
}

// paths reports whether containers attach their parts by paths.
func (m *Maker) paths() bool { return m.rootless || m.byPath }

// ofTheMachine reports whether this process is in the user namespace of the machine.
func ofTheMachine() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

// Options are those of a container in which this process may make others.
func Options() string {
	if os.Geteuid() == 0 && ofTheMachine() {
		return container.InContainer
	}
	return "in a container: docker run " + container.Unfiltered + " --security-opt systempaths=unconfined"
}

// tryUsers makes what takes ids of nobody, and no right over the machine. p.mu is held.
func (p *parts) tryUsers() error {
	if err := p.program(); err != nil {
		return err
	}
	ns, err := userNamespace(p.first, probeBase)
	if err != nil {
		return err
	}
	return unix.Close(ns)
}

// tryMany makes what takes rights over the machine. p.mu is held.
func (p *parts) tryMany() error {
	if err := p.tryUsers(); err != nil {
		return err
	}
	dev, _, err := devices(probeBase, p.devices)
	if err != nil {
		return err
	}
	return unix.Close(dev)
}

// used is the way in which a container was made, in a line. nobody: some of the machine's files are nobody's in it.
// bound: its devices are the machine's.
func (m *Maker) used(nobody, bound bool) string {
	if m.rootless {
		return "ids=1 upper=plain owners=nobody attach=path devices=bound proc=" + m.procWay()
	}
	if m.byPath {
		return "ids=65536 upper=plain owners=nobody attach=path devices=bound proc=" + m.procWay()
	}
	owners, devices := ownersIDMap, devicesMade
	if nobody {
		owners = ownersNobody
	}
	if bound {
		devices = devicesBound
	}
	return "ids=65536 upper=idmap owners=" + owners + " attach=handed devices=" + devices + " proc=" + m.procWay()
}
