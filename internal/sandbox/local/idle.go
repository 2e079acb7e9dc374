package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// alone reports whether nothing but pid 1 runs in a container, whose root is r. Of one without a cgroup its own /proc says it;
// one that has the daemon's shows others.
func alone(in container.Info, r *files.Root) bool {
	if in.Group == "" {
		f := files.FS{User: files.User{Name: "root", Home: "/"}, Root: r}
		one := false
		err := f.Do(context.Background(), func(a *files.Actor) error {
			names, err := a.Names("/proc")
			one = err == nil && !slices.ContainsFunc(names, func(n files.Name) bool { return runs(a, n.Name) })
			return err
		})
		return err == nil && one
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

// runs reports whether a name in /proc is that of a process which has not ended, other than pid 1.
func runs(a *files.Actor, name string) bool {
	if name == "1" || strings.Trim(name, "0123456789") != "" {
		return false
	}
	file, _, err := a.Open("/proc/" + name + "/stat")
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	st, ok := procfs.ParseStat(text)
	return err != nil || !ok || !st.Dead()
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
