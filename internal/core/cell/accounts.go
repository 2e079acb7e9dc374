//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
)

// A box over the machine's root has the machine's users, and none of what is in the
// machine's /etc/shadow: without one, root inside could become nobody else, since PAM knows no
// account that has no entry there. So the mask has files of its own in its place, made from
// what everybody may read. A root of the box's own, and layers that have such files, keep them.

// maxAccounts bounds the machine's files of accounts, in bytes; larger ones are cut.
const maxAccounts = 16 << 20

// shadowMode is what Debian gives these files.
const shadowMode = 0o640

// shadows writes them, once all that is hidden is.
func (m *mask) shadows() error {
	if hidden, ok := m.done["/etc"]; !ok || hidden {
		return nil
	}
	passwd, err := m.accounts("/etc/passwd")
	if err != nil {
		return err
	}
	group, err := m.accounts("/etc/group")
	if err != nil {
		return err
	}
	users, groups, gid := box.Shadow(passwd, group)
	for _, f := range [][2]string{{"/etc/shadow", users}, {"/etc/gshadow", groups}} {
		at := m.at + maskTop + f[0]
		if err := os.RemoveAll(at); err != nil { // what hid the machine's
			return err
		}
		if err := os.WriteFile(at, []byte(f[1]), 0o600); err != nil {
			return err
		}
		if !m.rootless {
			if err := os.Lchown(at, m.outside(0), m.outside(uint32(gid))); err != nil {
				return err
			}
		}
		if err := os.Chmod(at, shadowMode); err != nil {
			return err
		}
	}
	return nil
}

// accounts reads a file that everybody may read. There is none, or it is hidden: "".
func (m *mask) accounts(p string) (string, error) {
	if m.done[p] {
		return "", nil
	}
	f, err := os.Open(m.root + p)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	return string(b), err
}

// accountsState tells one state of the machine's accounts from another.
type accountsState [2]struct {
	ino  uint64
	size int64
	at   unix.Timespec // of its last change
}

// renew forgets the masks that were made for other accounts than the machine has now. p.mu is
// held.
func (p *parts) renew() {
	var now accountsState
	for i, path := range []string{"/etc/passwd", "/etc/group"} {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			now[i].ino, now[i].size, now[i].at = st.Ino, st.Size, st.Ctim
		}
	}
	if now == p.accounts {
		return
	}
	p.accounts = now
	for _, u := range p.users {
		for _, st := range u.stages {
			unix.Close(st.ns)
		}
		u.stages = nil
	}
	for _, r := range p.own {
		r.close()
	}
	p.own = nil
}
