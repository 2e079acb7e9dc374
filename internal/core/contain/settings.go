//go:build linux && (amd64 || arm64)

package contain

import (
	"bytes"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
)

// A container over this machine has the machine's own accounts, and nobody has a password: root inside
// becomes each of them, since each has an entry in /etc/shadow, without which PAM knows no account.
// A root of the container's own, and layers that have such files, keep them.

// maxAccounts bounds the machine's files of accounts, in bytes; larger ones are cut.
const maxAccounts = 16 << 20

// shadowMode is what Debian gives these files.
const shadowMode = 0o640

// hostsHead begins /etc/hosts of a container. Behind it stands the container's name.
const hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

func hostLine(name string) string { return "127.0.1.1\t" + name + "\n" }

// defaultName is the host name of a container that has none.
const defaultName = "sandbox"

const names = `passwd: files
group: files
shadow: files
gshadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`

const sudoers = `Defaults env_reset, secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
@includedir /etc/sudoers.d
`

const etc = "/etc/"

// withheld are the paths of container.Withheld, and what may lie in debconf's database.
var withheld = func() (all []string) {
	for _, name := range container.Withheld {
		all = append(all, etc+name)
	}
	return append(all, "/var/cache/debconf/passwords.dat", "/var/cache/debconf/passwords.dat-old")
}()

// settings writes /etc.
func (k *skeleton) settings() error {
	for _, p := range settingPaths() {
		if err := k.copy(p, p, false); err != nil {
			return err
		}
	}
	// One that is a link may lead to where containers have something else, or nothing.
	if fi, err := os.Lstat(etc + "resolv.conf"); err == nil && fi.Mode()&os.ModeSymlink != 0 {
		if err := os.Remove(k.at + etc + "resolv.conf"); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := k.copy(etc+"resolv.conf", etc+"resolv.conf", true); err != nil {
			return err
		}
	}
	if err := k.profile(etc + "profile"); err != nil {
		return err
	}
	passwd, group := k.accounts("passwd"), k.accounts("group")
	if passwd != "" { // else nobody may see users
		var uid int
		passwd, group, uid = container.Accounts(passwd, group)
		if err := k.mkdir("/home/"+container.User, attr{0o755, uint32(uid), uint32(uid)}); err != nil {
			return err
		}
	}
	shadow, gshadow, gid := container.Shadow(passwd, group)
	files := []struct {
		name, text string
		attr
	}{
		{"passwd", passwd, attr{mode: 0o644}}, {"group", group, attr{mode: 0o644}},
		{"shadow", shadow, attr{shadowMode, 0, uint32(gid)}}, {"gshadow", gshadow, attr{shadowMode, 0, uint32(gid)}},
		{"hosts", hostsHead + hostLine(defaultName), attr{mode: 0o644}}, {"hostname", defaultName + "\n", attr{mode: 0o644}},
		{"machine-id", "", attr{mode: 0o444}}, {"nsswitch.conf", names, attr{mode: 0o644}},
	}
	if _, err := os.Lstat(etc + "sudoers"); err == nil {
		files = append(files, struct {
			name, text string
			attr
		}{"sudoers", sudoers, attr{mode: 0o440}})
		if err := k.mkdir(etc+"sudoers.d", attr{mode: 0o750}); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := k.put(etc+f.name, f.text, f.attr); err != nil {
			return err
		}
	}
	return k.link("../proc/self/mounts", etc+"mtab")
}

// profile has the copy of what each login shell reads begin without a program: Debian's runs id to find out who asks,
// which takes as long as all else that such a shell does, and bash knows it. Other shells run id, as before.
func (k *skeleton) profile(p string) error {
	if fi, err := os.Lstat(k.at + p); err != nil || !fi.Mode().IsRegular() {
		return nil // there is none, or it leads elsewhere
	}
	b, err := os.ReadFile(k.at + p)
	if err != nil {
		return err
	}
	return os.WriteFile(k.at+p, bytes.ReplaceAll(b, []byte(`"$(id -u)"`), []byte(`"${EUID:-$(id -u)}"`)), 0o644)
}

// settingPaths are the files and directories of container.Settings that there are.
func settingPaths() (paths []string) {
	for _, name := range container.Settings {
		p := etc + name
		if !strings.ContainsAny(name, "*") {
			paths = append(paths, p)
			continue
		}
		found, _ := filepath.Glob(p)
		paths = append(paths, found...)
	}
	return paths
}

// accounts reads a file of the machine that everybody may read. There is none, or it is hidden: "".
func (k *skeleton) accounts(name string) string {
	var st unix.Stat_t
	p := path.Join(etc, name)
	if unix.Stat(p, &st) != nil || k.isHidden(p, &st) || st.Mode&0o004 == 0 {
		return ""
	}
	f, err := os.Open(p)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxAccounts))
	return string(b)
}

// settingsState tells one state of the machine's settings from another.
type settingsState struct {
	ino, size int64
	at        unix.Timespec // of its last change
}

// settingsNow is what all that containers have copies of is like.
func settingsNow() (now []settingsState) {
	var st unix.Stat_t
	for _, p := range watched {
		if unix.Stat(p, &st) == nil {
			now = append(now, settingsState{int64(st.Ino), st.Size, st.Ctim})
		} else {
			now = append(now, settingsState{})
		}
	}
	return now
}

// watched are the paths whose change makes another skeleton.
var watched = func() []string {
	paths := append([]string{etc + "passwd", etc + "group", "/usr/bin/python3", "/usr/bin/python", "/usr/local/bin"}, container.Packages...)
	for _, name := range container.Settings {
		if !strings.ContainsAny(name, "*") {
			paths = append(paths, etc+name)
		}
	}
	return paths
}()
