package checkpoint

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// lockRest is how long a lock must have stayed as it is until it counts as left: the git that
// took it may outlive who started it, for some milliseconds.
const lockRest = 200 * time.Millisecond

var hashForm = lazyregexp.New(`^[0-9a-f]{40,64}\n$`)

// dropLocks removes the locks that a git of ours has left which was killed as it moved HEAD,
// and reports whether it did. hash is the commit that this run has made.
//
// Git writes the new commit into the lock of what it moves: the branch, or HEAD itself. One
// that an earlier run has made differs in its times alone. If HEAD names a branch, git locks
// it first, and has written nothing there; nobody else could lock the branch meanwhile. So a
// lock of HEAD that is no younger than that of the branch is of the same git.
func (r *repository) dropLocks(ctx context.Context, hash string) bool {
	branch, err := r.run(ctx, nil, nil, "symbolic-ref", "-q", "HEAD")
	moved := "HEAD"
	if err == nil {
		moved = strings.TrimSuffix(string(branch), "\n")
	} else if exitCode(err) != 1 {
		return false
	}
	lock, head := r.lockOf(ctx, moved), r.lockOf(ctx, "HEAD")
	if lock == "" || head == "" || !r.isOurs(ctx, lock, hash) {
		return false
	}
	was, err := r.lstat(ctx, lock)
	if err != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lockRest):
	}
	if now, err := r.lstat(ctx, lock); err != nil || !os.SameFile(was, now) || now.ModTime() != was.ModTime() || !r.isOurs(ctx, lock, hash) {
		return false
	}
	return r.As(ctx, func() error {
		if st, err := os.Lstat(head); err == nil && head != lock && st.Size() == 0 && !st.ModTime().After(was.ModTime()) {
			_ = os.Remove(head) // else the next look says so
		}
		return os.Remove(lock)
	}) == nil
}

// lstat looks at a file of the repository.
func (r *repository) lstat(ctx context.Context, path string) (info fs.FileInfo, err error) {
	err = r.As(ctx, func() (err error) {
		info, err = os.Lstat(path)
		return err
	})
	return info, err
}

// lockOf is the path of the lock of a reference; "": it is not known.
func (r *repository) lockOf(ctx context.Context, ref string) string {
	out, err := r.run(ctx, nil, nil, "rev-parse", "--git-path", ref)
	if err != nil {
		return ""
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.top, path)
	}
	return path + ".lock"
}

// isOurs reports whether a lock holds a commit as hash is, but for its times.
func (r *repository) isOurs(ctx context.Context, lock, hash string) bool {
	st, err := r.lstat(ctx, lock)
	if err != nil || !st.Mode().IsRegular() || st.Size() > 65 || st.Mode()&fs.ModeSymlink != 0 {
		return false
	}
	text, err := r.readFile(ctx, lock)
	if err != nil || !hashForm.Match(text) {
		return false
	}
	a, err := r.run(ctx, nil, nil, "cat-file", "commit", string(bytes.TrimSpace(text)))
	if err != nil {
		return false
	}
	b, err := r.run(ctx, nil, nil, "cat-file", "commit", hash)
	return err == nil && timeless(a) == timeless(b)
}

var commitTimes = lazyregexp.New(`(?m)^((?:author|committer) .*>) \d+ [-+]\d{4}$`)

// timeless is a commit without its times: of its header, which ends at the first empty line.
func timeless(commit []byte) string {
	header, message, _ := strings.Cut(string(commit), "\n\n")
	return commitTimes.ReplaceAllString(header, "$1") + "\n\n" + message
}
