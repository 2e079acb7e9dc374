package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/embedded"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
)

// The template that there always is: the machine's files with an account that is no
// root's, and dot files that cost a login shell nothing.
const (
	baseName = "base"
	baseUser = container.User
)

func isBase(key string) bool {
	name, tag, tagged := strings.Cut(strings.ToLower(key), ":")
	return name == baseName && (!tagged || tag == driver.DefaultTag)
}

const baseProfile = `# Login shells of the sandbox.
if [ "${EUID:-$(id -u)}" -eq 0 ]; then
  PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
else
  PATH="/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games:/usr/local/sbin:/usr/sbin:/sbin"
fi
export PATH
if [ "${PS1-}" ]; then PS1='\u@\h:\w\$ '; fi
if [ -d /etc/profile.d ]; then
  for i in /etc/profile.d/*.sh; do
    if [ -r "$i" ]; then . "$i"; fi
  done
  unset i
fi
`

// maxPasswd bounds the machine's own files of accounts, in bytes.
const maxPasswd = 16 << 20

// baseLayer returns the layer of base, which is held for by. It is made again when the
// machine's accounts have changed.
func (d *Driver) baseLayer(by string) (layer.ID, error) {
	passwd, err := atomicfile.Read("/etc/passwd", maxPasswd)
	if err != nil {
		return "", fmt.Errorf("template %s: %w", baseName, err)
	}
	group, err := atomicfile.Read("/etc/group", maxPasswd)
	if err != nil {
		return "", fmt.Errorf("template %s: %w", baseName, err)
	}
	sum := sha256.New()
	program, err := d.sudoSum()
	if err != nil {
		return "", fmt.Errorf("template %s: %w", baseName, err)
	}
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%s\x00", passwd, group, baseProfile, program)
	oneID := d.uidBase() == 0
	if oneID { // all that is in a sandbox has it
		fmt.Fprint(sum, "one id")
	}
	key := "base 5 " + hex.EncodeToString(sum.Sum(nil))
	d.templates.making.Lock() // once
	defer d.templates.making.Unlock()
	if id, ok := d.layers.Find(key, by); ok {
		return id, nil
	}
	return d.layers.Make(layer.Meta{Key: key, By: by}, func(dir string) error {
		sudo, err := embedded.Carried()
		if err != nil {
			return err
		}
		return fillBase(dir, string(passwd), string(group), sudo, oneID)
	})
}

// sumOfSudo identifies the program sudo (package sudo of core) that base has.
func sumOfSudo() (string, error) {
	program, err := embedded.Carried()
	sum := sha256.Sum256(program)
	return hex.EncodeToString(sum[:]), err
}

// fillBase writes the files of base to a new directory. sudo is the program of that name, or nothing.
func fillBase(dir, passwd, group string, sudo []byte, oneID bool) error {
	passwd, group, uid := container.Accounts(passwd, group)
	shadow, gshadow, shadowGroup := container.Shadow(passwd, group)
	var errs []error
	type file struct {
		path string // a directory if it ends with a slash
		mode os.FileMode
		uid  int
		gid  int
		text string
	}
	base := []file{
		{"etc/", 0o755, 0, 0, ""},
		{"etc/passwd", 0o644, 0, 0, passwd},
		{"etc/group", 0o644, 0, 0, group},
		{"etc/shadow", 0o640, 0, shadowGroup, shadow},
		{"etc/gshadow", 0o640, 0, shadowGroup, gshadow},
		{"etc/profile", 0o644, 0, 0, baseProfile},
		{"etc/sudoers.d/", 0o755, 0, 0, ""},
		{"etc/sudoers.d/" + baseUser, 0o440, 0, 0, baseUser + " ALL=(ALL:ALL) NOPASSWD: ALL\n"},
		{"home/", 0o755, 0, 0, ""},
		{"home/" + baseUser + "/", 0o755, uid, uid, ""},
		{"home/" + baseUser + "/.profile", 0o644, uid, uid, ""},
		{"home/" + baseUser + "/.bashrc", 0o644, uid, uid, ""},
		{"root/", 0o700, 0, 0, ""},
		{"root/.profile", 0o644, 0, 0, ""},
		{"root/.bashrc", 0o644, 0, 0, ""},
	}
	if len(sudo) > 0 {
		base = append(base, file{"usr/", 0o755, 0, 0, ""}, file{"usr/bin/", 0o755, 0, 0, ""}, file{"usr/bin/sudo", 0o755, 0, 0, string(sudo)})
	}
	for _, f := range base {
		path := filepath.Join(dir, f.path)
		var err error
		if strings.HasSuffix(f.path, "/") {
			err = os.Mkdir(path, f.mode)
		} else {
			err = os.WriteFile(path, []byte(f.text), f.mode)
		}
		errs = append(errs, err, os.Chmod(path, f.mode))
		if !oneID {
			errs = append(errs, os.Lchown(path, f.uid, f.gid))
		}
	}
	return errors.Join(errs...)
}
