package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// commitTree makes a commit object: the tree of head with changes. "" means that
// nothing would change.
func (r *repository) commitTree(ctx context.Context, index, head string, lines []string, message []byte) (string, error) {
	drop := func() error {
		return r.As(ctx, func() error { return errors.Join(os.RemoveAll(index), os.RemoveAll(index+".lock")) })
	}
	if err := drop(); err != nil {
		return "", err
	}
	defer drop() //nolint:errcheck // the checkpoint is dropped with it
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := r.run(ctx, env, nil, "read-tree", head); err != nil {
		return "", err
	}
	if err := r.updateIndex(ctx, env, lines); err != nil {
		return "", err
	}
	out, err := r.run(ctx, env, nil, "write-tree")
	if err != nil {
		return "", err
	}
	tree := strings.TrimSpace(string(out))
	if out, err = r.run(ctx, nil, nil, "rev-parse", head+"^{tree}"); err != nil || strings.TrimSpace(string(out)) == tree {
		return "", err
	}
	out, err = r.run(ctx, nil, message, "commit-tree", tree, "-p", head, "-F", "-")
	return strings.TrimSpace(string(out)), err
}

// treeIndex is the path of the index that a commit is made from: in a private directory, or,
// where the owner of the repository has no way to that, beside the user's index.
func (r *repository) treeIndex(private, id string) string {
	if !r.Others() {
		return private
	}
	return freshIndex(filepath.Join(r.dir, "index"), id) + "-tree"
}

// updateIndex applies lines to an index. Removals come first: a file may become a directory.
func (r *repository) updateIndex(ctx context.Context, env, lines []string) error {
	sorted := slices.Clone(lines)
	slices.SortStableFunc(sorted, func(a, b string) int {
		order := map[bool]int{true: 0, false: 1}
		return order[strings.HasPrefix(a, "0 ")] - order[strings.HasPrefix(b, "0 ")]
	})
	_, err := r.run(ctx, env, []byte(strings.Join(sorted, "\x00")+"\x00"), "update-index", "-z", "--index-info")
	return err
}

// readIndex returns the user's index as it is, and its path.
func (r *repository) readIndex(ctx context.Context) ([]byte, string, error) {
	out, err := r.run(ctx, nil, nil, "rev-parse", "--git-path", "index")
	if err != nil {
		return nil, "", err
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.top, path)
	}
	b, err := r.readFile(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b, path, err
}

// readFile reads a file of the repository.
func (r *repository) readFile(ctx context.Context, path string) (b []byte, err error) {
	err = r.As(ctx, func() (err error) {
		b, err = os.ReadFile(path)
		return err
	})
	return b, err
}

// publish puts the changed index in place, and then moves HEAD from one commit to
// another. Killed between the two, it leaves the change staged, which harms nobody.
func (r *repository) publish(ctx context.Context, index string, before []byte, s *staging, hash, head string, o Options) error {
	if before != nil {
		if err := r.editIndex(ctx, index, before, s.staged, o); err != nil {
			return err
		}
	}
	o.step("staged")
	_, err := r.run(ctx, nil, nil, "update-ref", "-m", "tend heal "+o.ID, "HEAD", hash, head)
	if err == nil {
		return nil
	}
	// Somebody else was quicker. What we staged is taken back from what the index is now.
	if m := regexp.MustCompile(`Unable to create '(/[^'\n]*\.lock)': File exists`).FindStringSubmatch(err.Error()); m != nil {
		if err = (&lockedError{m[1]}); r.dropLocks(ctx, hash) {
			err = errMoved // they were ours, and it is tried again at once
		}
	} else {
		err = fmt.Errorf("%w: %w", errMoved, err)
	}
	if before == nil {
		return err
	}
	for range 5 {
		now, rerr := r.readFile(ctx, index)
		if rerr == nil {
			rerr = r.editIndex(ctx, index, now, s.unstage, o)
		}
		if !errors.Is(rerr, errMoved) {
			return errors.Join(err, rerr)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// lockedError says that the repository is locked. It is an errMoved: a lock is mostly there
// for some milliseconds.
type lockedError struct{ lock string }

func (e *lockedError) Error() string {
	return "git's lock " + e.lock + " is there: a git command is at work, or one was killed; if none is at work, remove the file"
}

func (e *lockedError) Is(target error) bool { return target == errMoved }

// freshIndex is the path of the index that is about to replace the user's.
func freshIndex(index, id string) string {
	return filepath.Join(filepath.Dir(index), "tend-heal-"+id)
}

// dropIndex removes what a run that was killed has left beside the user's index, with its lock:
// that is our own if the link and the file are one.
func (r *repository) dropIndex(ctx context.Context, index, id string) error {
	return r.As(ctx, func() error { return dropIndex(index, id) })
}

func dropIndex(index, id string) error {
	fresh := freshIndex(index, id)
	if a, err := os.Lstat(fresh); err == nil {
		if b, err := os.Lstat(index + ".lock"); err == nil && os.SameFile(a, b) {
			if err := os.Remove(index + ".lock"); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.RemoveAll(fresh), os.RemoveAll(fresh+".lock"), os.RemoveAll(fresh+"-tree"), os.RemoveAll(fresh+"-tree.lock"))
}

// editIndex applies lines to the user's index, if it is still what it was. The lock of the
// index is held only to replace it.
func (r *repository) editIndex(ctx context.Context, index string, before []byte, lines []string, o Options) error {
	fresh := freshIndex(index, o.ID)
	var info fs.FileInfo
	err := r.As(ctx, func() (err error) {
		if err := dropIndex(index, o.ID); err != nil {
			return err
		}
		if info, err = os.Stat(index); err != nil {
			return err
		}
		return os.WriteFile(fresh, before, info.Mode().Perm())
	})
	if err != nil {
		return err
	}
	if err := r.updateIndex(ctx, []string{"GIT_INDEX_FILE=" + fresh}, lines); err != nil {
		return errors.Join(err, r.As(ctx, func() error { return os.RemoveAll(fresh) }))
	}
	o.step("indexed")
	return r.As(ctx, func() error {
		if !r.Others() { // the owner makes it as their own
			if err := give(fresh, info); err != nil {
				return err
			}
		}
		if err := swapIndex(index, fresh, before, o.step); err != nil {
			return errors.Join(err, os.RemoveAll(fresh))
		}
		return nil
	})
}

// swapIndex replaces the index by a file that is beside it, if it is still what it was.
func swapIndex(index, fresh string, before []byte, step func(string)) error {
	lock := index + ".lock"
	if err := os.Link(fresh, lock); errors.Is(err, fs.ErrExist) {
		return &lockedError{lock}
	} else if err != nil {
		return err
	}
	step("locked")
	now, err := os.ReadFile(index)
	if err == nil && !bytes.Equal(now, before) {
		err = errMoved
	}
	if err != nil {
		return errors.Join(err, os.Remove(lock))
	}
	if err := os.Rename(lock, index); err != nil {
		return errors.Join(err, os.Remove(lock))
	}
	return os.Remove(fresh)
}
