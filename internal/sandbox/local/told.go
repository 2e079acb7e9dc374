package local

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// toldDir has files with the names of variables and a dot before them, as in the images
// of E2B's sandboxes.
const toldDir = "/run/e2b"

// tell writes for programs inside which sandbox theirs is, if the record says so. It is
// called before anything runs in the container: /run is new then, and nobody else's.
func (s *sandbox) tell(ctx context.Context) error {
	s.mu.Lock()
	told := s.rec.Told()
	s.mu.Unlock()
	if len(told) == 0 {
		return nil
	}
	root, err := s.openRoot()
	if err != nil {
		return err
	}
	f := files.FS{User: rootUser, Root: root}
	err = f.Do(ctx, func(a *files.Actor) error {
		for name, value := range told {
			mode := fs.FileMode(0o666) // as the original has them
			if value == "true" {
				mode = 0o444
			}
			if err := a.Put(toldDir+"/."+name, []byte(value), mode); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sandbox %s: what programs are told: %w", s.id, err)
	}
	return nil
}

// onlyTold reports whether there is nothing beside what tell writes.
func onlyTold(names []files.Name) bool {
	told := driver.Told("x", "x")
	return !slices.ContainsFunc(names, func(n files.Name) bool { return told[strings.TrimPrefix(n.Name, ".")] == "" })
}
