//go:build linux

// Package account looks up the users that processes run as.
package account

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/tend-run/tend/process"
)

// Account is a user as a process needs it.
type Account struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32
	// Other: a process must be given these numbers, for they are not the ones
	// of the program that starts it.
	Other bool
}

// Lookup takes a name, "uid" or "uid:gid"; "" is the user that this program
// runs as. A uid needs no entry in /etc/passwd; with a gid the process is in no
// other group.
//
// Errors: process.ErrPermission where this program cannot become another user.
func Lookup(name string) (*Account, error) {
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	var a *Account
	var err error
	if c := name[0]; c >= '0' && c <= '9' {
		a, err = numeric(name)
	} else if pw, lerr := user.Lookup(name); lerr != nil {
		err = errors.New("no such user")
	} else {
		a, err = fromEntry(pw)
	}
	if err != nil {
		return nil, err
	}
	// Only root can also leave the groups that this program is in.
	a.Other = a.UID != uint32(os.Geteuid()) ||
		strings.Contains(name, ":") && (a.GID != uint32(os.Getegid()) || os.Geteuid() == 0)
	if a.Other && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: tend runs as uid %d and cannot become another user; run it as root for that", process.ErrPermission, os.Geteuid())
	}
	return a, nil
}

// maxID is the largest uid and gid: one more is (uid_t)-1, which the kernel
// takes for "unchanged", and a process meant for it would run as root.
const maxID = 1<<32 - 2

func numeric(s string) (*Account, error) {
	us, gs, hasGID := strings.Cut(s, ":")
	uid, err := strconv.ParseUint(us, 10, 32)
	if err != nil || uid > maxID {
		return nil, fmt.Errorf("%q is no uid; 0 to %d are", us, maxID)
	}
	a := &Account{Name: us, Home: "/", UID: uint32(uid), GID: uint32(uid)}
	if pw, err := user.LookupId(us); err == nil {
		if a, err = fromEntry(pw); err != nil {
			return nil, err
		}
	}
	if hasGID {
		gid, err := strconv.ParseUint(gs, 10, 32)
		if err != nil || gid > maxID {
			return nil, fmt.Errorf("%q is no gid; 0 to %d are", gs, maxID)
		}
		a.GID, a.Groups = uint32(gid), nil
	}
	return a, nil
}

func fromEntry(pw *user.User) (*Account, error) {
	uid, err1 := strconv.ParseUint(pw.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(pw.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	ids, err := pw.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", pw.Username, err)
	}
	a := &Account{Name: pw.Username, Home: pw.HomeDir, UID: uint32(uid), GID: uint32(gid)}
	for _, s := range ids {
		if g, err := strconv.ParseUint(s, 10, 32); err == nil {
			a.Groups = append(a.Groups, uint32(g))
		}
	}
	return a, nil
}
