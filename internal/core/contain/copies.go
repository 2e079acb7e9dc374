//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/place"
	"github.com/tend-run/tend/process"
)

// copies are the pieces of a container alone, those inside others behind them. Their places in root's stage
// are those of layers that the container has not.
func (m *Maker) copies(s *container.Spec) (all []piece, err error) {
	wanted := slices.Clone(s.Copies)
	sort.Slice(wanted, func(i, j int) bool { return wanted[i].Target < wanted[j].Target })
	for i, c := range wanted {
		if m.byPath {
			return nil, fmt.Errorf("a copy of %s: where tend may not mount, its files would be nobody's inside; %s: %w",
				c.Source, container.InContainer, process.ErrUnsupported)
		}
		fd, err := openPlain(c.Source)
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &st)
			unix.Close(fd)
		}
		why := whyNot(err)
		switch {
		case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
			why = "is no directory"
		case err != nil && why == "":
			return nil, fmt.Errorf("copies: %s: %w", c.Source, err)
		}
		if _, in := place.Below(c.Target, "/run"); in {
			why = "is in /run, of which each sandbox has its own"
		}
		if why != "" {
			return nil, &process.InvalidError{Field: "copies", Reason: fmt.Sprintf("%.200q %s", c.Source, why)}
		}
		p := piece{path: c.Target, from: c.Source, at: stageLayer(len(s.Layers) + i), copied: true, nobody: m.rootless, host: true,
			dev: uint64(st.Dev), ino: st.Ino, above: wayTo(c.Target)}
		if m.rootless {
			p.at = stageHost + c.Source
		}
		p.above[len(p.above)-1] = attr{st.Mode & 0o7777, st.Uid, st.Gid}
		all = append(all, p)
	}
	return all, nil
}

// wayTo are the directories on the way to a path as this machine has them, and a place for what is there. One
// that it has not is root's.
func wayTo(path string) (all []attr) {
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		a := attr{mode: 0o755}
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			a = attr{st.Mode & 0o7777, st.Uid, st.Gid}
		}
		all = append(all, a)
	}
	slices.Reverse(all)
	return all
}
