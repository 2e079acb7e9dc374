package checkpoint

import (
	"context"
	"errors"
	"path"
	"strings"
)

// commit makes the new commit, and moves HEAD to it. One that a run before has made is found
// again.
func (b *back) commit(ctx context.Context) (hash string, changed []Left, err error) {
	// Once it is made it is done, whatever somebody has committed or begun since.
	if hash, err = b.made(ctx); err != nil || hash != "" {
		return hash, nil, err
	}
	s, head, changed, err := b.staged(ctx, false)
	if err != nil || len(changed) > 0 || s == nil { // nil: somebody else has taken it back
		return "", changed, err
	}
	for _, f := range b.files {
		if at := b.look(f); at.is == other {
			changed = append(changed, Left{string(f.Path), at.why()})
		}
	}
	if len(changed) > 0 {
		return "", changed, nil
	}
	index, indexPath, err := b.git.readIndex(ctx)
	if err != nil {
		return "", nil, err
	}
	c := Commit{Message: b.Message, Trailers: map[string]string{trailer: b.ID}}
	for key, value := range b.Trailers {
		c.Trailers[key] = value
	}
	if hash, err = b.git.commitTree(ctx, b.git.treeIndex(path.Join(b.Dir, BackIndex), b.ID), head, s.tree, message(c)); err != nil ||
		hash == "" {
		return "", nil, err
	}
	b.step("made")
	if err := b.git.publish(ctx, indexPath, index, s, hash, head, Options{ID: b.ID, step: b.step}); err != nil {
		return "", nil, err
	}
	b.step("committed")
	return hash, nil, nil
}

// made finds the commit of a run before this one.
func (b *back) made(ctx context.Context) (string, error) {
	out, err := b.git.run(ctx, nil, nil, "log", "-1", "--format=%H", "--fixed-strings", "--grep="+trailer+": "+b.ID, b.Commit+"..HEAD")
	return strings.TrimSpace(string(out)), err
}

// staged works out what is to change in the last commit's tree and in the index; nil: the
// last commit is as it should be. strict: nobody has begun to take it back.
func (b *back) staged(ctx context.Context, strict bool) (s *staging, head string, changed []Left, err error) {
	git := b.git
	if what := git.busy(); what != "" {
		return nil, "", nil, errors.New("git is in the middle of " + what + ": end that first")
	}
	if err := git.Disarm(ctx); err != nil {
		return nil, "", nil, err
	}
	head, files, err := git.head(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	index, err := git.index(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	s = &staging{}
	done := 0
	for _, f := range b.files {
		full := git.prefix + string(f.Path)
		was, is := git.blobOf(f.Before), git.blobOf(f.After)
		h, inHead := files[full]
		i, inIndex := index[full]
		why := ""
		switch {
		case alike(h, inHead, was):
			if done++; strict {
				why = "the last commit has it as it was before the repair already"
			}
		case !alike(h, inHead, is):
			why = "it was committed again since"
		case i.unmerged:
			why = "it has conflicts"
		case i.hidden:
			why = "git is told to ignore changes of it (skip-worktree or assume-unchanged)"
		case alike(i.blob, inIndex, is), !strict && alike(i.blob, inIndex, was):
		default:
			why = "it has staged changes"
		}
		if why != "" {
			changed = append(changed, Left{string(f.Path), why})
			continue
		}
		s.tree = append(s.tree, git.line(was, full))
		s.staged = append(s.staged, git.line(was, full))
		s.unstage = append(s.unstage, git.line(is, full))
	}
	switch {
	case len(changed) > 0:
		return nil, "", changed, nil
	case done == len(b.files):
		return nil, head, nil, nil
	case done > 0: // somebody has taken back a part of it
		for _, f := range b.files {
			if h, ok := files[git.prefix+string(f.Path)]; alike(h, ok, git.blobOf(f.Before)) {
				changed = append(changed, Left{string(f.Path), "the last commit has it as it was before the repair already"})
			}
		}
		return nil, "", changed, nil
	}
	return s, head, nil, nil
}

// blobOf is what git has of a side; nil: nothing.
func (r *repository) blobOf(s side) *blob {
	if s.Kind == "" {
		return nil
	}
	return &blob{gitMode(&entry{Kind: s.Kind, Mode: s.Mode}), r.oid(s.Data)}
}

func alike(b blob, there bool, want *blob) bool {
	if want == nil {
		return !there
	}
	return there && b == *want
}
