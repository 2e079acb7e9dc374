package local

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// rootUser is root inside, wherever its home is.
var rootUser = files.User{Name: "root", Home: "/"}

type statFunc = func(path string) (fs.FileInfo, error)

// filesOf are the sandbox's files for root inside.
func (r *builder) filesOf() (files.FS, *files.Root, error) {
	root, err := r.container.openRoot()
	return files.FS{User: rootUser, Root: root}, root, err
}

// workdir makes the working directory, for the user of the next steps.
func (r *builder) workdir() error {
	f, root, err := r.filesOf()
	if err != nil {
		return err
	}
	u, err := root.Account(r.conf.User)
	if err != nil {
		return err
	}
	_, err = files.FS{User: u, Root: root}.Mkdir(r.conf.Dir)
	if errors.Is(err, files.ErrPermission) {
		_, err = f.Mkdir(r.conf.Dir) // as in a container
	}
	if errors.Is(err, files.ErrExists) {
		return nil
	}
	return err
}

// copy unpacks the files of a COPY. A source that is a file goes to the destination, or
// into it if that is a directory or ends with a slash; of a directory, what is in it
// goes into the destination.
func (r *builder) copy(ctx context.Context, s driver.Step) error {
	f, root, err := r.filesOf()
	if err != nil {
		return err
	}
	user, mode := r.conf.User, fs.FileMode(0)
	if len(s.Args) > 2 && s.Args[2] != "" {
		user = s.Args[2]
	}
	if len(s.Args) > 3 && s.Args[3] != "" {
		n, err := strconv.ParseUint(s.Args[3], 8, 32)
		if err != nil || n > 0o7777 {
			return &driver.InvalidError{Field: "mode", Reason: fmt.Sprintf("is %.40q; octal digits up to 7777 are allowed", s.Args[3])}
		}
		mode = fs.FileMode(n).Perm()
	}
	owner, err := root.Account(user)
	if err != nil {
		return err
	}
	source := strings.Trim(path.Clean("/"+s.Args[0]), "/")
	to := s.Args[1]
	into := strings.HasSuffix(to, "/") || to == "." || strings.HasSuffix(to, "/.")
	dest := path.Clean("/" + cmpDir(r.conf.Dir, to))
	plain, err := r.find(s.Hash, source)
	if err != nil {
		return err
	}
	o := files.ExtractOptions{Owner: &owner, Mode: mode, Only: source, Strip: depth(source), Links: true}
	rename := ""
	if plain {
		if info, err := root.Stat(dest); err == nil && info.IsDir() {
			into = true
		}
		o.Strip--
		if !into {
			if dest, rename = path.Dir(dest), path.Base(dest); rename == path.Base(source) {
				rename = ""
			}
		}
	} else if i := strings.IndexAny(source, "*?["); i >= 0 {
		// A pattern: the archive has what it selects.
		o.Only, o.Strip = "", strings.Count(source[:i], "/")
	}
	if _, err := f.Mkdir(dest); err != nil && !errors.Is(err, files.ErrExists) {
		return err
	}
	in, err := r.b.spec.Blob(s.Hash)
	if err != nil {
		return err
	}
	defer in.Close()
	if rename == "" {
		_, err = f.Extract(ctx, in, dest, o)
		return err
	}
	aside := path.Join(dest, ".copied-"+string(driver.NewID()))
	if _, err := f.Mkdir(aside); err != nil {
		return err
	}
	_, err = f.Extract(ctx, in, aside, o)
	if err == nil {
		_, err = f.Move(path.Join(aside, path.Base(source)), path.Join(dest, rename))
	}
	return errors.Join(err, f.Remove(aside))
}

func depth(source string) int {
	if source == "" {
		return 0
	}
	return strings.Count(source, "/") + 1
}

// find reports whether the source is one file of the archive.
func (r *builder) find(hash, source string) (plain bool, err error) {
	blob, err := r.b.spec.Blob(hash)
	if err != nil {
		return false, err
	}
	defer blob.Close()
	in, err := files.Gunzip(blob)
	if err != nil {
		return false, fmt.Errorf("archive: %w", err)
	}
	t := tar.NewReader(in)
	const most = 1_000_000
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return false, errors.New("the archive of the files is empty; nothing matches the source")
			}
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("the archive of the files is damaged after %d entries: %w", n, err)
		}
		if n > most {
			return false, fmt.Errorf("the archive of the files has more than %d entries: %w", most, driver.ErrLimit)
		}
		if strings.Trim(path.Clean("/"+h.Name), "/") == source {
			return h.Typeflag != tar.TypeDir, nil
		}
	}
}
