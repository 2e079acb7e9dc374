//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"

	"github.com/tend-run/tend/internal/lib/place"
	"github.com/tend-run/tend/process"
)

// hidden is a path of the machine that no container sees.
type hidden struct {
	name  string // as it was given
	state bool   // it is the state directory
	place.Place
}

// hiddenOf returns the places of what is hidden, the state directory first.
func hiddenOf(t place.Table, state string, hide []string) (all []hidden, err error) {
	for i, name := range append([]string{state}, hide...) {
		if i > 0 && name == state {
			continue
		}
		p, err := t.Of(name)
		if err != nil && i == 0 {
			return nil, fmt.Errorf("the state directory: %w", err)
		}
		if err != nil {
			continue // who may not look there cannot show it, either
		}
		all = append(all, hidden{name, i == 0, p})
	}
	return all, nil
}

// hiddenIn returns the paths below a directory of the machine that containers are not to see. Errors: it is
// a place where no directory may be shown.
func hiddenIn(dir *place.Place, shown string, all []hidden) (paths []string, err error) {
	for _, h := range all {
		if _, ok := dir.In(&h.Place); ok && h.state {
			return nil, fmt.Errorf("sandboxes see %s, and that is in the state directory %s; use tend serve --state-dir DIR, elsewhere: %w",
				shown, h.name, process.ErrUnsupported)
		} else if ok {
			return nil, fmt.Errorf("sandboxes see %s, and that is in %s, which none may see: %w", shown, h.name, process.ErrUnsupported)
		}
		rest, ok := h.In(dir)
		if ok && h.state {
			return nil, fmt.Errorf("sandboxes see %s, and the state directory %s is in it; use tend serve --state-dir DIR, elsewhere: %w",
				shown, h.name, process.ErrUnsupported)
		} else if ok {
			paths = append(paths, rest)
		}
	}
	return paths, nil
}
