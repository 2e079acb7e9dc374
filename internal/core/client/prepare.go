//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/process"
)

// Root is the environment in which a process starts, as its processes see it: this
// machine ([files.Machine]), or a sandbox. The server looks up users, directories and
// programs nowhere else.
type Root interface {
	// User finds a name, "uid" or "uid:gid"; "" is the default user of processes.
	User(name string) (files.User, error)
	// Look calls look once, with the rights of a user inside, before it returns. An error
	// means that it is impossible to act for that user.
	Look(ctx context.Context, u files.User, look func(stat func(path string) (fs.FileInfo, error))) error
}

// prepare works out what the kernel needs to know: user, environment, working
// directory and the program's path. known: the directory is a home that was not looked at.
func (m *Manager) prepare(ctx context.Context, spec *process.Spec, root Root) (req *wire.Spawn, known *home, err error) {
	if spec.Limits.CPUs != 0 && !m.knows("cpu_limit") { // it would drop it in silence
		return nil, nil, fmt.Errorf("limits.cpus: %w: the keeper that runs knows no such limit; upgrade it with tend upgrade",
			process.ErrUnsupported)
	}
	badUser := func(err error) error {
		return &process.StartError{Reason: process.StartBadUser, What: spec.User, Err: err}
	}
	user, err := root.User(spec.User)
	if err != nil {
		return nil, nil, badUser(err)
	}
	req = &wire.Spawn{Spec: spool.EncodeSpec(nil, spec), Argv: spec.Argv, Dir: spec.Dir}
	u, daemon := &credentials.Account{User: user}, m.cfg.Environ
	if b, ok := root.(Boxed); ok {
		daemon = nil // nothing of it goes inside
		err = m.enter(req, b, u)
	} else if u, err = credentials.Of(spec.User, user); err != nil {
		err = badUser(err)
	}
	if err != nil {
		return nil, nil, err
	}
	req.Env = environ(spec, u, daemon)
	if req.Sync = spec.Retention.Sync; req.Sync == process.SyncDefault {
		req.Sync = m.cfg.Sync
	}
	if u.Other {
		req.Cred, req.UID, req.GID = true, uint32(u.UID), uint32(u.GID)
		for _, g := range u.Groups {
			req.Groups = append(req.Groups, uint32(g))
		}
	}
	if spec.Shell != "" {
		req.Argv = []string{"/bin/sh", "-c", spec.Shell}
	}
	// The child inside looks for its directory itself, with the same rights and later. Only a
	// home that is not there is no error.
	var h *home
	if req.Container != "" && spec.Dir == "" {
		h = &home{req.Container, u.UID, u.Home}
	}
	if req.Container != "" && strings.Contains(req.Argv[0], "/") && (h == nil || m.homes.have(h)) {
		if req.Path = req.Argv[0]; h != nil {
			req.Dir = h.dir
		}
		return req, h, nil
	}
	// With the user's rights: the answer shows nothing that the user could not see.
	look := func(stat func(string) (fs.FileInfo, error)) {
		if req.Dir == "" {
			req.Dir = u.Home
			if checkDir(stat, u.Home) != nil {
				req.Dir = "/" // a home that does not exist is common for system users
			} else if h != nil {
				m.homes.add(h)
			}
		} else if err = checkDir(stat, req.Dir); err != nil {
			return
		}
		req.Path, err = lookPath(stat, req.Argv[0], req.Dir, req.Env)
	}
	if root.Look(ctx, user, look) != nil { // nor could the child act for that user
		return nil, nil, &process.StartError{Reason: process.StartBadUser, What: fmt.Sprintf("uid %d, gid %d", u.UID, u.GID), Err: syscall.EPERM}
	}
	return req, nil, err
}

func checkDir(stat func(string) (fs.FileInfo, error), dir string) error {
	fi, err := stat(dir)
	if err == nil && !fi.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return &process.StartError{Reason: process.StartBadDir, What: dir, Err: cause(err)}
	}
	return nil
}

func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// lookPath finds the program as execvp would, in the PATH of the process's own
// environment. What the kernel thinks of the file is left to the kernel.
func lookPath(stat func(string) (fs.FileInfo, error), file, dir string, env []string) (string, error) {
	if strings.Contains(file, "/") {
		return file, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	denied := false
	for d := range strings.SplitSeq(path, ":") {
		if d == "" {
			d = "."
		}
		full := filepath.Join(d, file)
		if !filepath.IsAbs(d) {
			full = filepath.Join(dir, full)
		}
		fi, err := stat(full)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if fi.Mode()&0o111 == 0 {
			denied = true
			continue
		}
		return full, nil
	}
	if denied {
		return "", &process.StartError{Reason: process.StartPermission, What: file, Err: syscall.EACCES}
	}
	return "", &process.StartError{Reason: process.StartNotFound, What: file, Err: syscall.ENOENT}
}

// environ lays the spec's environment over what it inherits.
//
// Another user gets nothing of the daemon's environment but where programs are
// and what the place speaks: the rest is the daemon's user's, secrets included.
// The token that lets a caller in is for no process at all. A container gets nothing
// of it: daemon is nil.
func environ(spec *process.Spec, u *credentials.Account, daemon []string) []string {
	env := make([]string, 0, len(spec.Env)+4)
	add := func(k, v string) {
		if _, own := spec.Env[k]; !own {
			env = append(env, k+"="+v)
		}
	}
	switch {
	case spec.Inherit == process.InheritUser, spec.Inherit == process.InheritDaemon && daemon == nil:
		add("PATH", pathOf(daemon))
	case spec.Inherit == process.InheritDaemon:
		for _, kv := range daemon {
			k, v, _ := strings.Cut(kv, "=")
			switch {
			case k == "HOME", k == "USER", k == "LOGNAME", k == tokenVariable:
			case !u.Other, forAll(k):
				add(k, v)
			}
		}
	}
	if spec.Inherit != process.InheritNone {
		add("HOME", u.Home)
		add("USER", u.Name)
		add("LOGNAME", u.Name)
	}
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// tokenVariable holds the token of the command line.
const tokenVariable = "TEND_TOKEN"

// forAll are the variables that say nothing of a user.
func forAll(name string) bool {
	return name == "PATH" || name == "LANG" || name == "TZ" || name == "TERM" || strings.HasPrefix(name, "LC_")
}

// pathOf returns the PATH of an environment, or the usual one.
func pathOf(env []string) string {
	for _, kv := range env {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok && p != "" {
			return p
		}
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}
