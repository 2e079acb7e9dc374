//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/process"
)

// way is how boxes are made. Empty parts are found by trying.
type way struct {
	ids    string // how many a box has
	owners string // of the machine's files: idmap: their own; nobody, inside
	attach string // handed: the keeper attaches; path: the child does
	proc   string // inside: the child mounts it
}

const (
	idsOne       = "1"
	idsMany      = "65536"
	ownersIDMap  = "idmap"
	ownersNobody = "nobody"
	attachHanded = "handed"
	attachPath   = "path"
	procInside   = "inside"
)

// Force has boxes made in this way: "ids=1,owners=nobody". It is called before all other methods.
func (m *Maker) Force(text string) error {
	var w way
	parts := map[string]struct {
		to     *string
		values []string
	}{
		"ids": {&w.ids, []string{idsOne, idsMany}}, "owners": {&w.owners, []string{ownersIDMap, ownersNobody}},
		"attach": {&w.attach, []string{attachHanded, attachPath}}, "proc": {&w.proc, []string{procInside}},
	}
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			return nil
		}
		name, value, _ := strings.Cut(part, "=")
		p, ok := parts[name]
		if !ok || !slices.Contains(p.values, value) {
			return fmt.Errorf("%s has %q; known are ids=1, ids=65536, owners=idmap, owners=nobody, attach=handed, attach=path and proc=inside: %w",
				box.WayVariable, part, process.ErrUnsupported)
		}
		*p.to = value
	}
	one := w.ids == idsOne || w.ids == "" && os.Geteuid() != 0
	switch {
	case w.ids == idsMany && os.Geteuid() != 0:
		return fmt.Errorf("%s: 65536 ids of a sandbox take root: %w", box.WayVariable, process.ErrUnsupported)
	case one && (w.owners == ownersIDMap || w.attach == attachHanded):
		return fmt.Errorf("%s: with one id owners are nobody, and the parts are attached by path: %w", box.WayVariable, process.ErrUnsupported)
	case !one && w.attach == attachPath:
		return fmt.Errorf("%s: parts are attached by path only with ids=1: %w", box.WayVariable, process.ErrUnsupported)
	}
	m.forced = w
	return nil
}

// find decides once how many ids boxes have: what root of the machine may do is tried. Root of a
// user namespace has as few ids as an ordinary user. Root of the machine never gets boxes with one
// id by itself: it would be root of the machine.
func (m *Maker) find() error {
	m.finding.Lock()
	defer m.finding.Unlock()
	if m.found {
		return nil
	}
	one := os.Geteuid() != 0 || m.forced.ids == idsOne
	if !one && m.forced.ids == "" && !ofTheMachine() {
		err := m.parts.tryMany()
		if one = errors.Is(err, unix.EPERM); err != nil && !one {
			return err
		}
	}
	m.rootless, m.parts.rootless, m.parts.owners = one, one, m.forced.owners
	m.found = true
	return nil
}

// ofTheMachine reports whether this process is in the user namespace of the machine.
func ofTheMachine() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

// tryMany makes what takes rights over more than one id.
func (p *parts) tryMany() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.program(); err != nil {
		return err
	}
	ns, err := userNamespace(p.first, probeBase)
	if err != nil {
		return err
	}
	unix.Close(ns)
	dev, err := devices(probeBase)
	if err != nil {
		return err
	}
	return unix.Close(dev)
}

// used is the way in which a box was made, in a line. nobody: some of the machine's files are nobody's in it.
func (m *Maker) used(nobody bool) string {
	if m.rootless {
		return "ids=1 upper=plain owners=nobody attach=path devices=bound proc=inside"
	}
	owners := ownersIDMap
	if nobody {
		owners = ownersNobody
	}
	return "ids=65536 upper=idmap owners=" + owners + " attach=handed devices=made proc=inside"
}
