//go:build linux

package fakeproc

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// account is a user as a process needs it.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
	other      bool // not the user of the test
}

// findAccount takes a name, "uid" or "uid:gid"; "" is the user of the test.
func findAccount(name string) (*account, error) {
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	a, err := lookUp(name)
	if err != nil {
		return nil, err
	}
	a.other = a.uid != uint32(os.Geteuid()) || strings.Contains(name, ":")
	if a.other && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: only root can become another user", process.ErrPermission)
	}
	return a, nil
}

func lookUp(name string) (*account, error) {
	if name[0] < '0' || name[0] > '9' {
		pw, err := user.Lookup(name)
		if err != nil {
			return nil, errors.New("no such user")
		}
		return fromEntry(pw)
	}
	us, gs, hasGID := strings.Cut(name, ":")
	uid, err := strconv.ParseUint(us, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no uid", us)
	}
	a := &account{name: us, home: "/", uid: uint32(uid), gid: uint32(uid)}
	if pw, err := user.LookupId(us); err == nil {
		if a, err = fromEntry(pw); err != nil {
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

func fromEntry(pw *user.User) (*account, error) {
	uid, err1 := strconv.ParseUint(pw.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(pw.Gid, 10, 32)
	ids, err3 := pw.GroupIds()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	a := &account{name: pw.Username, home: pw.HomeDir, uid: uint32(uid), gid: uint32(gid)}
	for _, s := range ids {
		if g, err := strconv.ParseUint(s, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(g))
		}
	}
	return a, nil
}

// mayEnter guesses from the permission bits.
func (a *account) mayEnter(dir string) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	switch {
	case st.Uid == a.uid:
		return st.Mode&0o100 != 0
	case st.Gid == a.gid || slices.Contains(a.groups, st.Gid):
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}

// environ lays the spec's environment over what it inherits.
func environ(spec *process.Spec, a *account) []string {
	env := []string{}
	add := func(k, v string) {
		if _, own := spec.Env[k]; !own {
			env = append(env, k+"="+v)
		}
	}
	switch spec.Inherit {
	case process.InheritUser:
		add("PATH", os.Getenv("PATH"))
	case process.InheritDaemon:
		for _, kv := range os.Environ() {
			k, v, _ := strings.Cut(kv, "=")
			if k != "HOME" && k != "USER" && k != "LOGNAME" {
				add(k, v)
			}
		}
	}
	if spec.Inherit != process.InheritNone {
		add("HOME", a.home)
		add("USER", a.name)
		add("LOGNAME", a.name)
	}
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	return env
}
