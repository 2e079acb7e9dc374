package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Back says which repair to take back after its checkpoint is gone: by its commit, or by
// its Undo.
type Back struct {
	Root string // absolute path of the project
	Dir  string // absolute path of a private directory, which exists
	ID   string // of this taking back, as Options have it: a trailer of the commit, and the name of temporary files
	// Commit is the commit of the repair; "": Undo is used.
	Commit string
	Undo   *Undo
	// Message of the new commit, and its trailers beside Tend-Rollback, which is ID.
	Message  string
	Trailers map[string]string

	step func(string) // a test is told of each step
}

// TakenBack is the result, or the reason why nothing was done.
type TakenBack struct {
	Hash  string   // of the new commit; "": there was no commit to take back
	Paths []string // what is as it was before the repair
	Left  []Left   // what somebody has changed while it was taken back, and stays
	// Changed are the paths that are not as the repair left them. Then nothing was done.
	Changed []Left
	Diff    string // of CheckBack: what would be changed, unified, at most 256 KiB
}

// BackIndex is a file in Dir while TakeBack works.
const BackIndex = "back.index"

// trailer names the one that tells the commits of TakeBack.
const trailer = "Tend-Rollback"

// back is one that is under way.
type back struct {
	Back
	root  *os.Root
	git   *repository
	files []Undone // paths below root
	dirs  []name   // that the repair has made
}

// CheckBack reports whether a repair can be taken back: each path that it changed must be
// as it left it, in the last commit, in the index and in the work tree. It changes nothing.
func CheckBack(ctx context.Context, o Back) (out TakenBack, err error) {
	b, err := openBack(ctx, o)
	if err != nil {
		return out, err
	}
	defer b.root.Close()
	if b.git != nil {
		if _, _, out.Changed, err = b.staged(ctx, true); err != nil {
			return out, err
		}
	}
	var diff strings.Builder
	left := 0
	for _, f := range b.files {
		out.Paths = append(out.Paths, string(f.Path))
		at := b.look(f)
		if at.is != after && !slices.ContainsFunc(out.Changed, func(l Left) bool { return l.Path == string(f.Path) }) {
			out.Changed = append(out.Changed, Left{string(f.Path), at.why()})
		}
		if left > 0 {
			left++
		} else if part := backDiff(f, at); diff.Len()+len(part) > MaxDiff-100 {
			left = 1
		} else {
			diff.WriteString(part)
		}
	}
	if left > 0 {
		fmt.Fprintf(&diff, "… %d of %d changed files are left out: the diff is too long\n", left, len(b.files))
	}
	out.Diff = diff.String()
	return out, nil
}

// TakeBack makes the paths of a repair as they were before it, by one new commit if the
// repair was committed. It changes no other path, nothing that is staged, and nothing that
// is not committed. A repeated call, also after a kill, has the same result. It is done
// with the new commit; before that, nothing is done.
func TakeBack(ctx context.Context, o Back) (out TakenBack, err error) {
	b, err := openBack(ctx, o)
	if err != nil {
		return out, err
	}
	defer b.root.Close()
	for _, f := range b.files { // of one that was killed
		if err := b.tidy(f); err != nil {
			return out, err
		}
	}
	if b.git != nil {
		for try := 1; ; try++ {
			out.Hash, out.Changed, err = b.commit(ctx)
			if !errors.Is(err, errMoved) || try == 5 {
				break
			}
			select {
			case <-ctx.Done():
				return out, ctx.Err()
			case <-time.After(time.Duration(try) * 100 * time.Millisecond):
			}
		}
		if err != nil || len(out.Changed) > 0 {
			return out, err
		}
	} else if out.Changed = b.unlike(); len(out.Changed) > 0 {
		return out, nil
	}
	b.put(&out)
	b.step("done")
	return out, nil
}

func openBack(ctx context.Context, o Back) (*back, error) {
	if o.step == nil {
		o.step = func(string) {}
	}
	if !filepath.IsAbs(o.Root) || !filepath.IsAbs(o.Dir) || !validID.MatchString(o.ID) || len(o.ID) > 64 {
		return nil, errors.New("to take something back, an absolute root, a directory and a name are needed")
	}
	real, err := filepath.EvalSymlinks(o.Root)
	if err != nil {
		return nil, err
	}
	o.Root = real
	b := &back{Back: o}
	if o.Commit != "" {
		if err := b.readCommit(ctx); err != nil {
			return nil, err
		}
	} else if o.Undo != nil {
		b.files, b.dirs = o.Undo.Files, o.Undo.Dirs
	}
	if len(b.files) == 0 {
		return nil, errors.New("there is nothing to go back to")
	}
	for _, f := range b.files {
		if p := string(f.Path); !filepath.IsLocal(p) || p == ".git" || strings.HasPrefix(p, ".git/") {
			return nil, fmt.Errorf("%q is no path of the project", p)
		}
	}
	b.root, err = os.OpenRoot(o.Root)
	return b, err
}

// readCommit finds what a commit has changed.
func (b *back) readCommit(ctx context.Context) error {
	var why string
	if b.git, why = openRepository(ctx, b.Root); b.git == nil {
		return fmt.Errorf("the repair was committed, and now %s", why)
	}
	if !isHash(b.Commit) {
		return fmt.Errorf("%.80q is no commit", b.Commit)
	}
	out, err := b.git.run(ctx, nil, nil, "rev-parse", "-q", "--verify", b.Commit+"^1^{commit}")
	if err != nil {
		return fmt.Errorf("there is nothing to go back to: the commit %.12s of the repair is not in the repository any more, or has none before it", b.Commit)
	}
	before := strings.TrimSpace(string(out))
	if out, err = b.git.run(ctx, nil, nil, "diff-tree", "-r", "-z", "--no-renames", before, b.Commit); err != nil {
		return err
	}
	recs := records(out)
	made := map[name]bool{}
	size := 0
	for i := 0; i+1 < len(recs); i += 2 {
		f := strings.Fields(strings.TrimPrefix(recs[i], ":")) // modes, then objects, of both; status
		rel, below := strings.CutPrefix(recs[i+1], b.git.prefix)
		if len(f) != 5 || !below {
			return fmt.Errorf("the commit %.12s has changed %q, which is not in the project: git revert takes it back", b.Commit, recs[i+1])
		}
		one := Undone{Path: name(rel)}
		for n, to := range []*side{&one.Before, &one.After} {
			if *to, err = b.git.side(ctx, blob{f[n], f[n+2]}); err != nil {
				return err
			}
			size += len(to.Data)
		}
		if size > maxFile {
			return fmt.Errorf("the commit %.12s has changed more than %d MiB: git revert takes it back", b.Commit, maxFile>>20)
		}
		b.files = append(b.files, one)
		for dir := madeBelow(one); dir != ""; dir = parent(dir) {
			made[dir] = true
		}
	}
	if out, err = b.git.run(ctx, nil, nil, "ls-tree", "-r", "-d", "-z", "--full-tree", "--name-only", before); err != nil {
		return err
	}
	for _, dir := range records(out) {
		if rel, ok := strings.CutPrefix(dir, b.git.prefix); ok {
			delete(made, name(rel))
		}
	}
	for dir := range made {
		b.dirs = append(b.dirs, dir)
	}
	slices.Sort(b.dirs)
	return nil
}

// madeBelow is the directory of a file that the repair has made; "": it has not.
func madeBelow(f Undone) name {
	if f.Before.Kind != "" {
		return ""
	}
	return parent(f.Path)
}

// isHash reports whether a text is the name of an object.
func isHash(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// side is what a tree of git has at a path.
func (r *repository) side(ctx context.Context, b blob) (side, error) {
	switch b.mode {
	case "000000":
		return side{}, nil
	case "100644", "100755", "120000":
	default:
		return side{}, errors.New("the repair has changed what is neither a file nor a link: git revert takes it back")
	}
	data, err := r.read(ctx, b.oid)
	if err != nil {
		return side{}, err
	}
	if b.mode == "120000" {
		return sideOf(link, 0, -1, -1, data), nil
	}
	mode := os.FileMode(0o644)
	if b.mode == "100755" {
		mode = 0o755
	}
	return sideOf(file, mode, -1, -1, data), nil
}

// backDiff is what taking back changes of a file.
func backDiff(f Undone, at found) string {
	text := func(kind string, data []byte) string {
		if kind == link {
			return "link to " + string(data) + "\n"
		}
		return string(data)
	}
	old, now := text(at.Kind, at.Data), text(f.Before.Kind, f.Before.Data)
	if old == now && f.Before.Kind == f.After.Kind && isText([]byte(old)) {
		return fmt.Sprintf("%s: mode %o becomes %o\n", f.Path, f.After.Mode, f.Before.Mode)
	}
	return FileDiff(string(f.Path), []byte(old), []byte(now), f.After.Kind != "", f.Before.Kind != "")
}
