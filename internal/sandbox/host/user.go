package host

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/files"
)

// lookup finds the account of process.Spec.User, if the daemon can act for it.
func lookup(name string) (files.User, error) {
	u, err := files.Account(name)
	if err != nil {
		return files.User{}, err
	}
	return u, u.Check()
}

// makeWork makes the sandbox's own directory, and what leads to it passable
// for its user. b.mu is held.
func (b *sandbox) makeWork() error {
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
func (b *sandbox) letIn(uid int) error {
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

// removeWork removes the directory that makeWork made. One at a user's home is
// removed with that user's rights: on the way to it the user may have put a
// link to somebody else's. What is not the user's to remove is left there.
func (b *sandbox) removeWork(work, owner string) error {
	if filepath.Dir(work) == b.home() {
		return os.RemoveAll(work)
	}
	u, err := lookup(owner)
	if err == nil {
		err = files.FS{User: u}.Remove(work)
	}
	if errors.Is(err, files.ErrPermission) || errors.Is(err, files.ErrUnknownUser) {
		b.d.log.Warn("files of a sandbox are left", slog.String("id", string(b.id)), slog.String("dir", work), slog.Any("err", err))
		return nil
	}
	return err
}
