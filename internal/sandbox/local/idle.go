package local

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
)

// alone reports whether nothing but pid 1 runs in a container. Of a container without a cgroup
// nobody can say.
func alone(in container.Info) bool {
	if in.Group == "" {
		return false
	}
	only := true
	err := filepath.WalkDir(in.Group, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, pid := range strings.Fields(string(text)) {
			only = only && pid == strconv.Itoa(in.PID)
		}
		return err
	})
	return err == nil && only
}

// emptyInside reports whether a directory has nothing in it but empty directories, and
// what programs are told, which each container gets.
func emptyInside(r *files.Root, dir string) bool {
	empty := true
	err := files.FS{User: files.User{Name: "root", Home: "/"}, Root: r}.Do(context.Background(), func(a *files.Actor) error {
		names, err := a.Names(dir)
		for _, n := range names {
			path := filepath.Join(dir, n.Name)
			below, berr := a.Names(path)
			if berr != nil || len(below) > 0 && !(path == toldDir && onlyTold(below)) {
				empty = false
			}
		}
		return err
	})
	return empty && err == nil
}
