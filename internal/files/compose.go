package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MaxSources is the most files that one Compose joins.
const MaxSources = 10_000

// Compose joins the sources, in order, into the destination, which is
// replaced at once and only when all is written, and then removes the
// sources. On an error the sources are all there.
func (f FS) Compose(ctx context.Context, sources []string, destination string) (entry Entry, err error) {
	if len(sources) == 0 {
		return Entry{}, &InvalidError{Field: "source_paths", Reason: "must not be empty"}
	}
	if len(sources) > MaxSources {
		return Entry{}, &InvalidError{Field: "source_paths", Reason: fmt.Sprintf("has %d paths; the limit is %d", len(sources), MaxSources)}
	}
	if destination == "" {
		return Entry{}, &InvalidError{Field: "destination", Reason: "is required"}
	}
	dest, err := f.Resolve(destination)
	if err != nil {
		return Entry{}, err
	}
	if err := checkNew(dest); err != nil {
		return Entry{}, err
	}
	paths, err := f.sources(sources, dest)
	if err != nil {
		return Entry{}, err
	}
	err = f.Do(ctx, func(a *Actor) error {
		if err := a.compose(sources, paths, dest); err != nil {
			return err
		}
		entry, err = a.entry(dest, a.owners())
		return err
	})
	return entry, err
}

// sources resolves the sources.
func (f FS) sources(sources []string, dest string) ([]string, error) {
	paths := make([]string, len(sources))
	for i, source := range sources {
		field := fmt.Sprintf("source_paths[%d]", i)
		path, err := f.Resolve(source)
		if err != nil {
			var invalid *InvalidError
			if errors.As(err, &invalid) {
				return nil, &InvalidError{Field: field, Reason: invalid.Reason}
			}
			return nil, err
		}
		if path == dest {
			return nil, &InvalidError{Field: field, Reason: fmt.Sprintf("%q cannot be the same as destination", source)}
		}
		paths[i] = path
	}
	return paths, nil
}

// compose refuses what cannot be joined before anything is written. asked are
// the sources as the caller names them.
func (a *Actor) compose(asked, paths []string, dest string) error {
	if info, err := a.stat(dest, true); err == nil && info.IsDir() {
		return &PathError{Op: "compose", Path: dest, Kind: ErrIsDir}
	} else if err == nil && !info.Mode().IsRegular() {
		// The rename would replace a device for everybody on the machine.
		return &InvalidError{Field: "destination", Reason: fmt.Sprintf("%.200q is not a regular file", dest)}
	}
	for i, path := range paths {
		if err := errors.Join(a.Err(), a.fresh()); err != nil {
			return err
		}
		info, err := a.stat(path, true)
		if err != nil {
			return pathError("compose", asked[i], err)
		}
		if !info.Mode().IsRegular() {
			return &PathError{Op: "compose", Path: asked[i], Kind: ErrNotRegular}
		}
	}
	if err := a.fresh(); err != nil {
		return err
	}
	if err := a.ensureDir(filepath.Dir(dest)); err != nil {
		return err
	}
	dir, name, err := a.parent(dest)
	if err != nil {
		return pathError("compose", dest, err)
	}
	defer dir.close()
	// In the same directory, so that the rename cannot cross file systems.
	temp := ".compose-" + rand.Text() + ".tmp"
	if err := a.join(dir, temp, paths); err != nil {
		return pathError("compose", dest, err)
	}
	if err := os.Rename(dir.at(temp), dir.at(name)); err != nil {
		return pathError("compose", dest, errors.Join(err, os.Remove(dir.at(temp))))
	}
	for _, path := range paths {
		a.discard(path)
	}
	return nil
}

// discard removes a source: the destination is whole, and one that stays is
// only litter.
func (a *Actor) discard(path string) {
	if a.fresh() != nil {
		return
	}
	dir, name, err := a.parent(path)
	if err != nil {
		return
	}
	defer dir.close()
	_ = os.Remove(dir.at(name))
}

// join writes the files at paths into the new file temp in dir, which is removed
// again if that fails.
func (a *Actor) join(dir *handle, temp string, paths []string) (err error) {
	out, err := os.OpenFile(dir.at(temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, out.Close(), a.settle(dir.file)) // the sources were elsewhere
		if err != nil {
			_ = os.Remove(dir.at(temp))
		}
	}()
	if err := a.give(out, true); err != nil {
		return err
	}
	for _, path := range paths {
		if err := a.appendFile(out, path); err != nil {
			return err
		}
	}
	return nil
}

func (a *Actor) appendFile(out *os.File, path string) error {
	if err := a.fresh(); err != nil {
		return err
	}
	in, _, err := a.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	return a.transfer(out, in)
}
