package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxSources is the most files that one Compose joins.
const MaxSources = 10_000

// Compose joins the sources, in order, into the destination, which is
// replaced at once and only when all is written, and then removes the
// sources. On an error the sources are all there.
func (f FS) Compose(ctx context.Context, sources []string, destination string) (Entry, error) {
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
	if info, err := os.Stat(dest); err == nil && info.IsDir() {
		return Entry{}, &PathError{Op: "compose", Path: dest, Kind: ErrIsDir}
	} else if err == nil && !info.Mode().IsRegular() {
		// The rename would replace a device for everybody on the machine.
		return Entry{}, &InvalidError{Field: "destination", Reason: fmt.Sprintf("%.200q is not a regular file", dest)}
	}
	paths, err := f.checkSources(sources, dest)
	if err != nil {
		return Entry{}, err
	}
	if err := f.ensureDir(filepath.Dir(dest)); err != nil {
		return Entry{}, err
	}
	// In the same directory, so that the rename cannot cross file systems.
	temp := filepath.Join(filepath.Dir(dest), ".compose-"+rand.Text()+".tmp")
	if err := f.join(ctx, temp, paths); err != nil {
		return Entry{}, pathError("compose", dest, err)
	}
	if err := os.Rename(temp, dest); err != nil {
		var le *os.LinkError
		if errors.As(err, &le) {
			err = le.Err
		}
		return Entry{}, pathError("compose", dest, errors.Join(err, os.Remove(temp)))
	}
	for _, path := range paths {
		// The destination is whole; a source that stays is only litter.
		_ = os.Remove(path)
	}
	return stat(dest, newOwners())
}

// checkSources resolves the sources and refuses what cannot be joined before
// anything is written.
func (f FS) checkSources(sources []string, dest string) ([]string, error) {
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
		info, err := os.Stat(path)
		if err != nil {
			return nil, pathError("compose", source, err)
		}
		if !info.Mode().IsRegular() {
			return nil, &PathError{Op: "compose", Path: source, Kind: ErrNotRegular}
		}
		paths[i] = path
	}
	return paths, nil
}

// join writes the files at paths into the new file temp, which is removed
// again if that fails.
func (f FS) join(ctx context.Context, temp string, paths []string) (err error) {
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(temp)
		}
	}()
	if err := f.give(out); err != nil {
		return err
	}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := appendFile(out, path); err != nil {
			return err
		}
	}
	return nil
}

func appendFile(out *os.File, path string) error {
	in, _, err := openRegular("compose", path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	// Between files the kernel copies by itself.
	_, err = io.Copy(out, in)
	return err
}
