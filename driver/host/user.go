package host

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tend-run/tend/files"
)

// lookup finds the account of a name, "uid" or "uid:gid", as processes take it.
func lookup(name string) (files.User, error) {
	uid, gid, both := strings.Cut(name, ":")
	if uid == "" || uid[0] < '0' || uid[0] > '9' {
		return files.Lookup(name)
	}
	if u, err := user.LookupId(uid); err == nil {
		uid = u.Username
	}
	found, err := files.Lookup(uid)
	if n, gerr := strconv.Atoi(gid); err == nil && both && gerr == nil {
		found.GID, found.Groups = n, []int{n}
	}
	return found, err
}

// makeWork makes the sandbox's own directory, and what leads to it passable
// for its user. b.mu is held.
func (b *box) makeWork() error {
	owner, err := lookup(b.user())
	if err != nil {
		return badUser(err)
	}
	b.rec.Work = filepath.Join(b.home(), workName)
	if err := os.Mkdir(b.rec.Work, 0o755); err != nil {
		return err
	}
	if owner.UID == os.Geteuid() {
		return nil
	}
	err = b.letIn(owner.UID)
	if err == nil {
		return os.Lchown(b.rec.Work, owner.UID, owner.GID)
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// The user gets a directory at home, where nothing bars the way.
	if err := os.Remove(b.rec.Work); err != nil {
		return err
	}
	b.rec.Work = filepath.Join(owner.Home, ".tend", "boxes", string(b.id))
	_, err = (files.FS{User: owner}).Mkdir(b.rec.Work)
	return err
}

// letIn lets a user other than the daemon's pass to the sandbox's own
// directory, and act there beside its owner. Nobody else may: the daemon's
// directories stay closed. b.mu is held.
func (b *box) letIn(uid int) error {
	if uid == os.Geteuid() || b.rec.Work != filepath.Join(b.home(), workName) {
		return nil
	}
	const pass, act = 1, 7
	top := b.d.cfg.Top
	if top == "" {
		top = b.d.cfg.Dir
	}
	for dir := b.home(); ; dir = filepath.Dir(dir) {
		if err := admit(dir, uid, pass); err != nil {
			return err
		}
		if dir == top || dir == filepath.Dir(dir) {
			break
		}
	}
	if err := admit(b.rec.Work, uid, act); err != nil {
		return err
	}
	return admitBelow(b.rec.Work, uid, act)
}
