//go:build linux

package client

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// account is a user as a process needs it.
type account struct {
	name     string
	home     string
	uid, gid uint32
	groups   []uint32
	other    bool // not the user that tend runs as
}

// users looks accounts up and remembers them while /etc/passwd and /etc/group
// stay as they are.
type users struct {
	mu    sync.Mutex
	stamp [2]time.Time        // guarded by mu
	known map[string]*account // guarded by mu
}

// find returns the account for a name, "uid" or "uid:gid"; "" is the user that
// tend runs as.
func (u *users) find(name string) (*account, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var stamp [2]time.Time
	for i, path := range []string{"/etc/passwd", "/etc/group"} {
		if fi, err := os.Stat(path); err == nil {
			stamp[i] = fi.ModTime()
		}
	}
	if u.known == nil || stamp != u.stamp {
		u.known, u.stamp = map[string]*account{}, stamp
	}
	if a := u.known[name]; a != nil {
		return a, nil
	}
	a, err := lookup(name)
	if err != nil {
		return nil, err
	}
	a.other = a.uid != uint32(os.Geteuid())
	if a.other && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: tend runs as uid %d and cannot become another user; run it as root for that", process.ErrPermission, os.Geteuid())
	}
	u.known[name] = a
	return a, nil
}

func lookup(name string) (*account, error) {
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	if c := name[0]; c >= '0' && c <= '9' {
		return numeric(name)
	}
	pw, err := user.Lookup(name)
	if err != nil {
		return nil, errors.New("no such user")
	}
	return accountOf(pw)
}

// numeric takes "uid" or "uid:gid"; the uid need not have an entry.
func numeric(s string) (*account, error) {
	us, gs, hasGID := strings.Cut(s, ":")
	uid, err := strconv.ParseUint(us, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no uid", us)
	}
	a := &account{name: us, home: "/", uid: uint32(uid), gid: uint32(uid)}
	if pw, err := user.LookupId(us); err == nil {
		if a, err = accountOf(pw); err != nil {
			return nil, err
		}
	}
	if hasGID {
		gid, err := strconv.ParseUint(gs, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no gid", gs)
		}
		a.gid, a.groups = uint32(gid), nil
	}
	return a, nil
}

func accountOf(pw *user.User) (*account, error) {
	uid, err1 := strconv.ParseUint(pw.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(pw.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	a := &account{name: pw.Username, home: pw.HomeDir, uid: uint32(uid), gid: uint32(gid)}
	ids, err := pw.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", pw.Username, err)
	}
	for _, s := range ids {
		if g, err := strconv.ParseUint(s, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(g))
		}
	}
	return a, nil
}
