package git

import (
	"context"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/tend-run/tend/internal/files"
)

// user is the owner of a repository.
type user struct{ files.User }

func userOf(uid int) (*user, error) {
	u, err := files.Account(strconv.Itoa(uid))
	if err != nil {
		return nil, err
	}
	return &user{u}, nil
}

// run gives a command the rights of the user.
func (u *user) run(cmd *exec.Cmd) {
	groups := make([]uint32, 0, len(u.Groups))
	for _, g := range u.Groups {
		groups = append(groups, uint32(g))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: groups}}
}

// As does what is done in the directory of the repository with the rights of its owner, who may
// have put links there. No program is started in it.
func (r *Repository) As(ctx context.Context, do func() error) error {
	if r.as == nil {
		return do()
	}
	return files.FS{User: r.as.User}.Do(ctx, func(*files.Actor) error { return do() })
}

// Secret reports whether the owner of the repository may not read a file of the project: the
// content of such a file is not put into the repository.
func (r *Repository) Secret(uid int, mode uint32) bool {
	return r.as != nil && uid != r.as.UID && mode&0o004 == 0
}
