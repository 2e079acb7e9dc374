//go:build linux

// Package credentials looks up the ids, groups and variables that a process needs to run as
// a user.
package credentials

import (
	"fmt"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/process"
)

// Account is a user as a process needs it.
type Account struct {
	files.User
	// Other: a process must be given these numbers, for they are not the ones
	// of the program that starts it.
	Other bool
}

// Lookup finds the account of process.Spec.User on this machine.
//
// Errors: those of [files.Account] and of [Of].
func Lookup(name string) (*Account, error) {
	u, err := files.Account(name)
	if err != nil {
		return nil, err
	}
	return Of(name, u)
}

// Of returns the account of the user that name stands for.
//
// Errors: process.ErrPermission where this program cannot become another user.
func Of(name string, u files.User) (*Account, error) {
	a := &Account{User: u}
	// Only root can also leave the groups that this program is in.
	a.Other = u.UID != os.Geteuid() ||
		strings.Contains(name, ":") && (u.GID != os.Getegid() || os.Geteuid() == 0)
	if a.Other && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: tend runs as uid %d and cannot become another user; run it as root for that",
			process.ErrPermission, os.Geteuid())
	}
	return a, nil
}
