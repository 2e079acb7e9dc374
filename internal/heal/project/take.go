package project

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxSaid is how many paths a model is told of.
const maxSaid = 20

// taking says what of a command's changes may be made. Each file is one decision, and what is
// refused is said to the model. Of what nobody has committed, a command can neither remove
// anything, nor empty it, nor set it back to what was committed; of what it changes
// otherwise, a copy is kept. What the checkpoint could not bring back is left alone.
type taking struct {
	l     *Local
	now   *checkpoint.Standings
	notes []string
	more  int
	made  map[string]bool // directories, by it
	out   Admitted
}

func (t *taking) say(format string, args ...any) {
	if len(t.notes) == maxSaid {
		t.more++
		return
	}
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// said is what the model is told, after the output.
func (t *taking) said() string {
	var b strings.Builder
	for _, n := range t.notes {
		fmt.Fprintf(&b, "\n[tend: %s]", n)
	}
	if t.more > 0 {
		fmt.Fprintf(&b, "\n[tend: and %d more]", t.more)
	}
	return b.String()
}

// Admit implements Project. The changes are in the order in which they can be made.
func (l *Local) Admit(ctx context.Context, changes []view.Change) (_ Admitted, err error) {
	if l.point == nil {
		return Admitted{}, errors.New("there is no checkpoint")
	}
	t := &taking{l: l, made: map[string]bool{}}
	for _, c := range changes {
		l.see(c.Path)
	}
	if err := l.Absorb(ctx); err != nil { // what has changed since is somebody else's
		return Admitted{}, err
	}
	if t.now, err = l.point.Standings(ctx); err != nil {
		return Admitted{}, err
	}
	there := map[string]bool{}
	for _, c := range changes {
		if c.Kind != view.Gone {
			there[c.Path] = true
		}
	}
	for _, c := range changes {
		switch name := c.Path; c.Kind {
		case view.Gone:
			t.gone(name, there)
		case view.Other:
			t.refuse(name, "links, FIFOs and the like are not taken over")
		case view.Closed:
			t.refuse(name, "it is another user's, and closed to the one that the command ran as; leave it where it is")
		case view.Directory:
			if err := t.directory(name); err != nil {
				t.refuse(name, err.Error())
			}
		case view.File:
			if err := t.file(ctx, name, c); err != nil {
				t.refuse(name, err.Error())
			}
		}
	}
	t.out.Said = t.said()
	return t.out, nil
}

// see remembers how a path was when it was changed in a view first.
func (l *Local) see(name string) checkpoint.Standing {
	if l.seen == nil {
		l.seen = map[string]checkpoint.Standing{}
	}
	if _, ok := l.seen[name]; !ok {
		l.seen[name] = l.point.Standing(name)
	}
	return l.seen[name]
}

// meanwhile reports whether somebody else has changed a path since.
func (l *Local) meanwhile(name string) bool {
	was, is := l.see(name), l.point.Standing(name)
	return was.Seen != is.Seen || was.Sum != is.Sum
}

// was is the sum of a file that a change is to replace; "": there is none. Of what tools make no
// checkpoint knows one.
func (l *Local) was(name string) string {
	if s := l.see(name); s.Seen {
		return s.Sum
	}
	f, err := atomicfile.Open(l.full(name), os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (t *taking) admit(c view.Change) { t.out.Changes = append(t.out.Changes, c) }

// Preview implements Project.
func (l *Local) Preview(ctx context.Context, changes []view.Change) (all []agent.FileDiff, err error) {
	if l.point == nil {
		return nil, errors.New("there is no checkpoint")
	}
	now, err := l.point.Standings(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if c.Kind == view.Directory || c.Mode.IsDir() {
			continue
		}
		before, berr := l.point.Before(ctx, c.Path)
		if berr != nil && !errors.Is(berr, fs.ErrNotExist) {
			return nil, berr
		}
		head, herr := now.Head(ctx, c.Path)
		if herr != nil && !errors.Is(herr, fs.ErrNotExist) {
			return nil, herr
		}
		s, gone := now.Of(c.Path), c.Kind == view.Gone
		all = append(all, agent.FileDiff{
			Path: c.Path, Before: text(before), After: text(c.Data), Added: berr != nil && !s.Seen, Deleted: gone,
			Dirty:  s.Uncommitted || berr != nil && herr == nil,
			AtHead: gone && herr != nil || !gone && herr == nil && bytes.Equal(head, c.Data),
		})
	}
	return all, nil
}

// Editable implements Project.
func (l *Local) Editable(_ context.Context, name string) (string, error) {
	if err := l.restorable(name); err != nil {
		return "", err
	}
	at, err := l.guard.Check(name, true)
	if err == nil && l.point != nil {
		l.see(at)
	}
	return at, err
}

// Apply implements Project. It comes to its end, whatever becomes of ctx.
func (l *Local) Apply(ctx context.Context, changes []view.Change) error {
	if l.point == nil {
		return errors.New("there is no checkpoint")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	for _, c := range changes {
		l.see(c.Path)
	}
	if err := l.Absorb(ctx); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Kind == view.Directory {
			continue
		}
		if l.meanwhile(c.Path) {
			return fmt.Errorf("somebody else has changed %s meanwhile, so nothing was changed", c.Path)
		}
		if at, err := l.guard.Check(c.Path, true); !c.Mode.IsDir() && (err != nil || at != c.Path) {
			return fmt.Errorf("nothing was changed: %w", cmp.Or(err, fmt.Errorf("%s leads to %s", c.Path, at)))
		}
	}
	var err error
	for _, c := range changes {
		var one error
		switch {
		case c.Kind == view.Gone:
			if one = l.guard.Remove(c.Path, l.was(c.Path)); c.Mode.IsDir() {
				one = nil // one that is not empty stays
			}
		case c.Kind == view.Directory:
			one = l.guard.MakeDir(c.Path)
		default:
			one = l.guard.Replace(c.Path, c.Data, c.Mode, l.was(c.Path))
		}
		if err = one; err != nil {
			err = fmt.Errorf("%s: %w", c.Path, err)
			break
		}
	}
	l.seen = nil
	return errors.Join(err, l.Mark(ctx))
}

func (t *taking) refuse(name, why string) { t.say("%s was left as it is: %s", name, why) }

// gone removes what a command has removed, but for what it has made anew.
func (t *taking) gone(name string, there map[string]bool) {
	files, dirs := t.now.Below(name)
	if len(files)+len(dirs) == 0 {
		if _, err := os.Lstat(t.full(name)); err == nil {
			t.refuse(name, "the checkpoint does not hold it")
		}
		return
	}
	removed := map[string]bool{}
	for _, one := range files {
		if there[one] {
			continue
		}
		s := t.now.Of(one)
		var err error
		switch {
		case s.Uncommitted:
			err = errors.New("it is not committed, and a command may not remove it")
		default:
			err = t.allowed(one, s)
		}
		if err == nil {
			_, err = t.l.guard.Check(one, true)
		}
		if err != nil {
			t.refuse(one, err.Error())
			continue
		}
		t.admit(view.Change{Path: one, Kind: view.Gone})
		removed[one] = true
	}
	for _, dir := range slices.Backward(dirs) {
		stays := func(e fs.DirEntry) bool { return !removed[path.Join(dir, e.Name())] }
		if all, err := os.ReadDir(t.full(dir)); err == nil && !there[dir] && !slices.ContainsFunc(all, stays) {
			t.admit(view.Change{Path: dir, Kind: view.Gone, Mode: fs.ModeDir})
			removed[dir] = true
		}
	}
}

// allowed says why a path cannot be changed by a command.
func (t *taking) allowed(name string, s checkpoint.Standing) error {
	if err := t.l.unheld(name, s); err != nil {
		return err
	}
	if t.l.meanwhile(name) {
		return errors.New("somebody else has changed it meanwhile")
	}
	return t.parents(name)
}

// unheld says why nobody but its owner changes a path: the checkpoint could not bring it back.
func (l *Local) unheld(name string, s checkpoint.Standing) error {
	switch {
	case s.Left:
		return errors.New("it is the service's own data")
	case s.Link:
		return errors.New("it is a link")
	case !s.Held:
		return errors.New("it is too large for the checkpoint, which could not bring it back")
	case s.Seen || s.Made:
		return nil
	}
	if _, err := os.Lstat(l.full(name)); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("the checkpoint does not hold it")
	}
	return nil
}

func (t *taking) parents(name string) error {
	return t.l.parents(name, func(dir string) bool { return t.made[dir] || t.now.Of(dir).Seen || t.now.Of(dir+"/x").Made })
}

// parents says why nothing can be made where a path is: in a repository of its own, or in a
// directory that could not be read. known reports whether a directory is none of these.
func (l *Local) parents(name string, known func(dir string) bool) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if known(dir) {
			return nil
		}
		if _, err := os.Lstat(l.full(dir)); !errors.Is(err, fs.ErrNotExist) {
			return errors.New("the checkpoint does not hold what is in " + dir)
		}
	}
	return nil
}

// restorable says why a path is not edited: what the checkpoint does not hold would neither be
// reviewed nor rolled back. A person may allow it.
func (l *Local) restorable(asked string) error {
	if l.point == nil {
		return nil
	}
	name, err := l.guard.Check(asked, false)
	if err != nil {
		return err
	}
	s := l.point.Standing(name)
	if s.Made {
		err = errors.New("tools make it: change what they make it of")
	} else {
		err = errors.Join(l.unheld(name, s), l.parents(name, func(dir string) bool { return l.point.Standing(dir).Seen }))
	}
	if err != nil {
		return guard.Ask(asked, "checkpoint", err.Error())
	}
	return nil
}

// directory makes one that is not there yet.
func (t *taking) directory(name string) error {
	if err := t.parents(name + "/x"); err != nil {
		return err
	}
	if _, err := os.Lstat(t.full(name)); err == nil {
		return nil // something was changed in it
	}
	if _, err := t.l.guard.Check(name, true); err != nil {
		return err
	}
	t.made[name] = true
	t.admit(view.Change{Path: name, Kind: view.Directory})
	return nil
}

func (t *taking) full(name string) string {
	return filepath.Join(t.l.c.Root, filepath.FromSlash(name))
}

// file takes over one file.
func (t *taking) file(ctx context.Context, name string, c view.Change) error {
	s := t.now.Of(name)
	mode := c.Mode
	if info, err := os.Lstat(t.full(name)); err == nil {
		mode &^= 0o022 &^ info.Mode().Perm() // nobody else gets to write to it
		if s.Sum == sum(c.Data) && info.Mode().Perm() == mode {
			t.out.Same = append(t.out.Same, name) // it was opened for writing, and no more
			return nil
		}
	} else {
		mode &^= 0o022
	}
	if err := t.allowed(name, s); err != nil {
		return err
	}
	if s.Uncommitted {
		if err := t.uncommitted(ctx, name, c.Data); err != nil {
			return err
		}
	}
	if _, err := t.l.guard.Check(name, true); err != nil {
		return err
	}
	t.admit(view.Change{Path: name, Kind: view.File, Mode: mode, Data: c.Data})
	return nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// uncommitted says why a command may not change a file in which something is not committed,
// or keeps a copy of that.
func (t *taking) uncommitted(ctx context.Context, name string, data []byte) error {
	p := t.l.point
	was, err := p.Before(ctx, name)
	if err != nil {
		return err
	}
	if bytes.Equal(was, data) {
		return nil
	}
	if len(bytes.TrimSpace(data)) == 0 && len(bytes.TrimSpace(was)) > 0 {
		return errors.New("it is not committed, and a command may not empty it")
	}
	head, err := t.now.Head(ctx, name)
	if err == nil && setBack(head, was, data) {
		return errors.New("what is not committed in it would be lost, which no command may do; complete or repair it by edit")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if t.l.kept[name] == sum(was) {
		return nil
	}
	if _, err := p.Keep(ctx, name); err != nil {
		return fmt.Errorf("no copy of it could be kept: %w", err)
	}
	if t.l.kept == nil {
		t.l.kept = map[string]string{}
	}
	t.l.kept[name] = sum(was)
	return nil
}

// setBack reports whether nothing is left of what is not committed: the content is that of
// the last commit, or none of the lines that it did not have is there any more.
func setBack(head, was, now []byte) bool {
	if bytes.Equal(head, now) {
		return true
	}
	committed, left := lines(head), lines(now)
	own := lines(was)
	found := 0
	for line := range own {
		if committed[line] {
			delete(own, line)
		} else if left[line] {
			found++
		}
	}
	return len(own) > 0 && found == 0
}

// lines are those of a text without their spaces: a formatter moves them.
func lines(text []byte) map[string]bool {
	all := map[string]bool{}
	for line := range bytes.Lines(text) {
		short := strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, string(line))
		if short != "" {
			all[short] = true
		}
	}
	return all
}
