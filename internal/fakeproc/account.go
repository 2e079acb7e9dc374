//go:build linux

package fakeproc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/account"
	"github.com/tend-run/tend/process"
)

// mayEnter guesses from the permission bits of a directory and of those above.
func mayEnter(a *account.Account, dir string) bool {
	return mayPass(a, dir) && (dir == filepath.Dir(dir) || mayEnter(a, filepath.Dir(dir)))
}

func mayPass(a *account.Account, dir string) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	switch {
	case int(st.Uid) == a.UID:
		return st.Mode&0o100 != 0
	case int(st.Gid) == a.GID || slices.Contains(a.Groups, int(st.Gid)):
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}

// environ lays the spec's environment over what it inherits.
func environ(spec *process.Spec, a *account.Account) []string {
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
		add("HOME", a.Home)
		add("USER", a.Name)
		add("LOGNAME", a.Name)
	}
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	return env
}
