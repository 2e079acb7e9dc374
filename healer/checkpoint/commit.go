package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Commit says what to commit.
type Commit struct {
	Message  string            // its first line is the subject
	Trailers map[string]string // such as Heal-Id
	Paths    []string          // of the changes, those to commit; nil: all
	// Overlap also commits lines that the healer has edited and that had not been committed
	// before. Without it a file with such lines is left. A JSON file that could not be read
	// before, and whose repaired lines are those of the last commit, is committed as a whole.
	Overlap bool
}

// Committed is what Commit has done.
type Committed struct {
	Hash  string   // of the commit; "": there was nothing to commit
	Paths []string // what it changes
	Left  []Left   // changes of the healer that are not committed
}

// errMoved says that the index or the branch changed while a commit was made.
var errMoved = errors.New("somebody else has committed or staged something at this moment")

// Commit commits what the healer has changed, and nothing else: uncommitted changes of
// the user stay uncommitted, staged ones stay staged. The author is "tend healer"; no hook
// runs, and nothing is signed. While git is in the middle of something, such as a merge, and
// outside of git, nothing is committed, and Left says why. A detached HEAD is moved.
// Called again after a kill, it comes to the same end.
func (p *Point) Commit(ctx context.Context, c Commit) (Committed, error) {
	for try := 1; ; try++ {
		done, err := p.commit(ctx, c)
		if !errors.Is(err, errMoved) || try == 5 {
			return done, err
		}
		select {
		case <-ctx.Done():
			return done, ctx.Err()
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		}
	}
}

func (p *Point) commit(ctx context.Context, c Commit) (done Committed, err error) {
	now, err := p.scan(ctx, p.last, nil)
	if err != nil {
		return done, err
	}
	var changes []name
	for _, ch := range p.changes(now, nil) {
		if (c.Paths == nil || slices.Contains(c.Paths, ch.Path)) && !directories(p.base[name(ch.Path)], now[name(ch.Path)]) {
			changes = append(changes, name(ch.Path))
		}
	}
	leave := func(why string) (Committed, error) {
		for _, at := range changes {
			done.Left = append(done.Left, Left{string(at), why})
		}
		return done, nil
	}
	if len(changes) == 0 {
		return done, nil
	}
	if p.git == nil {
		return leave("nothing can be committed: " + p.noGit)
	}
	if what := p.git.busy(); what != "" {
		return leave("git is in the middle of " + what)
	}
	if err := p.git.disarm(ctx); err != nil {
		return done, err
	}
	head, files, err := p.git.head(ctx)
	if err != nil {
		return done, err
	}
	if head == "" {
		return leave("the repository has no commit yet")
	}
	before, indexPath, err := p.git.readIndex(ctx)
	if err != nil {
		return done, err
	}
	index, err := p.git.index(ctx)
	if err != nil {
		return done, err
	}
	for _, e := range index {
		if e.unmerged {
			return leave("git has files with conflicts")
		}
	}
	s := &staging{p: p, head: files, index: index, overlap: c.Overlap, removed: map[string]bool{}}
	if s.strange, err = p.git.converted(ctx, p.git.prefix, changes); err != nil {
		return done, err
	}
	// What goes comes first: it may make room.
	slices.SortStableFunc(changes, func(a, b name) int {
		gone := func(at name) int {
			if e := now[at]; e == nil || e.Kind == directory {
				return 0
			}
			return 1
		}
		return gone(a) - gone(b)
	})
	for _, at := range changes {
		why, err := s.add(ctx, at, p.base[at], now[at])
		if err != nil {
			return done, err
		}
		if why != "" {
			done.Left = append(done.Left, Left{string(at), why})
		}
	}
	if len(s.paths) == 0 {
		return done, nil
	}
	hash, err := p.git.commitTree(ctx, p.path("tree.index"), head, s.tree, message(c))
	if err != nil || hash == "" {
		return done, err
	}
	p.opts.step("made")
	if err := p.git.publish(ctx, indexPath, before, s, hash, head, p.opts); err != nil {
		return done, err
	}
	p.opts.step("committed")
	slices.Sort(s.paths)
	done.Hash, done.Paths = hash, s.paths
	return done, nil
}

func message(c Commit) []byte {
	clean := func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "") }
	var b strings.Builder
	b.WriteString(strings.TrimSpace(clean(c.Message)) + "\n")
	if len(c.Trailers) > 0 {
		b.WriteByte('\n')
	}
	for _, key := range slices.Sorted(maps.Keys(c.Trailers)) {
		fmt.Fprintf(&b, "%s: %s\n", key, strings.Join(strings.Fields(clean(c.Trailers[key])), " "))
	}
	return []byte(b.String())
}

// staging collects what is to change in the last commit's tree and in the index.
type staging struct {
	p       *Point
	head    map[string]blob
	index   map[string]indexed
	strange map[name]string
	overlap bool
	removed map[string]bool // what the commit deletes

	// Lines of update-index --index-info: for the tree, for the index, and to undo that.
	tree, staged, unstage []string
	paths                 []string
}

// add works out what of a path is the healer's. why says why nothing is committed of it.
func (s *staging) add(ctx context.Context, at name, was, is *entry) (why string, err error) {
	git, full := s.p.git, s.p.git.prefix+string(at)
	head, inHead := s.head[full]
	staged, inIndex := s.index[full]
	if is != nil && is.Kind == directory {
		is = nil
	}
	switch {
	case s.strange[at] != "":
		return s.strange[at], nil
	case inHead && head.mode == "160000":
		return "it is a submodule", nil
	case inIndex && staged.hidden:
		return "git is told to ignore changes of it (skip-worktree or assume-unchanged)", nil
	case inHead && !inIndex && is != nil:
		return "it was removed from the index", nil
	case !inHead && inIndex && was != nil:
		return "the user has not committed it yet", nil
	case is != nil && is.Kind == file && is.Oid == "", was != nil && was.Kind == file && was.Oid == "":
		return "it is too large", nil
	case was != nil && was.Kind == directory:
		was = nil // a file in place of a directory is new
	}
	if is != nil && inHead && s.p.isBlob(is, head) || is == nil && !inHead {
		return "", nil // as in the last commit
	}
	var next *blob
	switch {
	case was == nil && !inHead, was != nil && inHead && s.p.isBlob(was, head):
		if is != nil {
			if next, err = s.blob(ctx, at, is); err != nil {
				return "", err
			}
		}
	case !inHead:
		return "the user has not committed it yet", nil
	case is == nil:
		return "it had changes of the user that are not committed", nil
	case was == nil:
		return "the user had deleted it", nil
	default:
		if next, why, err = s.mine(ctx, at, head, was, is); why != "" || err != nil {
			return why, err
		}
	}
	// The index gets the same change, so that what the user has staged stays as it is.
	index := next
	switch {
	case inIndex == inHead && (!inIndex || staged.blob == head), next == nil && !inIndex, next != nil && inIndex && staged.blob == *next:
	case next == nil || !inIndex || !inHead:
		return "the user has staged changes of it", nil
	default:
		var texts [3]string
		for i, oid := range []string{head.oid, staged.oid, next.oid} {
			data, err := git.read(ctx, oid)
			if err != nil {
				return "", err
			}
			if texts[i] = string(data); !isText(data) {
				return "the user has staged changes of it", nil
			}
		}
		merged, ok := merge(texts[0], texts[1], texts[2])
		if !ok {
			return "the user has staged changes of the same lines", nil
		}
		oid, err := git.write(ctx, []byte(merged))
		if err != nil {
			return "", err
		}
		index = &blob{staged.mode, oid}
	}
	if next == nil {
		s.removed[full] = true
	} else if s.obstructed(full) {
		return "the user has staged or committed something else in its place", nil
	}
	line := func(b *blob) string {
		if b == nil {
			return "0 " + strings.Repeat("0", len(git.oid(nil))) + "\t" + full
		}
		return b.mode + " " + b.oid + "\t" + full
	}
	var old *blob
	if inIndex {
		old = &staged.blob
	}
	s.tree, s.staged, s.unstage = append(s.tree, line(next)), append(s.staged, line(index)), append(s.unstage, line(old))
	s.paths = append(s.paths, string(at))
	return "", nil
}

// obstructed reports whether a file stands where a path needs a directory, or the other way
// round, in the last commit or in the index.
func (s *staging) obstructed(full string) bool {
	for dir := parent(name(full)); dir != ""; dir = parent(dir) {
		_, inHead := s.head[string(dir)]
		_, inIndex := s.index[string(dir)]
		if (inHead || inIndex) && !s.removed[string(dir)] {
			return true
		}
	}
	for path := range s.index {
		if strings.HasPrefix(path, full+"/") && !s.removed[path] {
			return true
		}
	}
	for path := range s.head {
		if strings.HasPrefix(path, full+"/") && !s.removed[path] {
			return true
		}
	}
	return false
}

// blob writes what a path is now to git.
func (s *staging) blob(ctx context.Context, at name, is *entry) (*blob, error) {
	data := []byte(is.Target)
	if is.Kind == file {
		var err error
		if data, err = s.p.read(at); err != nil {
			return nil, err
		}
		if s.p.git.oid(data) != is.Oid {
			return nil, errMoved
		}
	}
	oid, err := s.p.git.write(ctx, data)
	return &blob{gitMode(is), oid}, err
}

// mine returns a file of the last commit with what the healer has changed, for a file that
// had changes which are not committed.
func (s *staging) mine(ctx context.Context, at name, head blob, was, is *entry) (*blob, string, error) {
	const mixed = "it had changes of the user, which cannot be told from those of the healer"
	if was.Kind != file || is.Kind != file || head.mode != "100644" && head.mode != "100755" {
		return nil, mixed, nil
	}
	old, err := s.p.git.read(ctx, head.oid)
	if err != nil {
		return nil, "", err
	}
	before, err := s.p.content(ctx, was)
	if err != nil {
		return nil, mixed, nil
	}
	after, err := s.p.read(at)
	if err != nil {
		return nil, "", err
	}
	if s.p.git.oid(after) != is.Oid {
		return nil, "", errMoved
	}
	if !isText(old) || !isText(before) || !isText(after) {
		return nil, mixed, nil
	}
	h, b, n := string(old), string(before), string(after)
	if h != b && !strings.Contains(h, "\r\n") && strings.Contains(b, "\r\n") {
		b, n = lineFeeds(b), lineFeeds(n) // git has changed the ends of lines
	}
	out, ok := merge(b, h, n)
	if ok { // the user's changes are still the same, on top of the healer's
		again, fine := merge(h, out, b)
		ok = fine && again == n
	}
	if !ok {
		if !s.overlap {
			return nil, mixed, nil
		}
		if out, ok = overlapping(h, b, n); !ok {
			if !completed(string(at), b, n) {
				return nil, mixed, nil
			}
			out = n
		}
	}
	mode := head.mode
	if gitMode(was) != gitMode(is) {
		mode = gitMode(is)
	}
	if out == h && mode == head.mode {
		return nil, mixed, nil
	}
	oid, err := s.p.git.write(ctx, []byte(out))
	return &blob{mode, oid}, "", err
}

// completed reports whether a file of data could not be read before, and can be now. Such a
// file was nobody's finished work: what the user wrote into it counts only as the healer
// has completed it, so all of it is committed.
func completed(path, before, now string) bool {
	return strings.HasSuffix(path, ".json") && !json.Valid([]byte(before)) && json.Valid([]byte(now))
}

// converted finds what git stores in another form than it has in the work tree, and what it
// ignores: the bytes of such a file may not be committed.
func (r *repository) converted(ctx context.Context, prefix string, paths []name) (map[name]string, error) {
	var in bytes.Buffer
	for _, path := range paths {
		in.WriteString(prefix + string(path) + "\x00")
	}
	out, err := r.run(ctx, nil, in.Bytes(), "check-attr", "-z", "--stdin", "filter", "ident", "working-tree-encoding")
	if err != nil {
		return nil, err
	}
	found := map[name]string{}
	recs := records(out)
	for i := 0; i+2 < len(recs); i += 3 {
		if value := recs[i+2]; value != "unspecified" && value != "unset" {
			found[name(strings.TrimPrefix(recs[i], prefix))] = "git changes its content when it is committed (" + recs[i+1] + ")"
		}
	}
	in.Reset()
	for _, path := range paths {
		in.WriteString("./" + prefix + string(path) + "\x00") // a name may begin with a colon, which has a meaning
	}
	out, err = r.run(ctx, nil, in.Bytes(), "check-ignore", "-z", "--stdin")
	if err != nil && exitCode(err) != 1 {
		return nil, err
	}
	for _, path := range records(out) {
		found[name(strings.TrimPrefix(path, "./"+prefix))] = "git ignores it"
	}
	return found, nil
}

// commitTree makes a commit object: the tree of head with changes. "" means that
// nothing would change.
func (r *repository) commitTree(ctx context.Context, index, head string, lines []string, message []byte) (string, error) {
	if err := errors.Join(os.RemoveAll(index), os.RemoveAll(index+".lock")); err != nil {
		return "", err
	}
	defer os.RemoveAll(index)
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
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b, path, err
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
	err = fmt.Errorf("%w: %w", errMoved, err)
	if before == nil {
		return err
	}
	for range 5 {
		now, rerr := os.ReadFile(index)
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

// editIndex applies lines to the user's index, if it is still what it was. The lock of the
// index is held only to replace it.
func (r *repository) editIndex(ctx context.Context, index string, before []byte, lines []string, o Options) error {
	fresh := filepath.Join(filepath.Dir(index), "tend-heal-"+o.ID)
	// Our own lock, of a run that was killed: the link and the file are one.
	if a, err := os.Lstat(fresh); err == nil {
		if b, err := os.Lstat(index + ".lock"); err == nil && os.SameFile(a, b) {
			if err := os.Remove(index + ".lock"); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(fresh+".lock")); err != nil {
		return err
	}
	info, err := os.Stat(index)
	if err != nil {
		return err
	}
	if err := os.WriteFile(fresh, before, info.Mode().Perm()); err != nil {
		return err
	}
	if err := r.updateIndex(ctx, []string{"GIT_INDEX_FILE=" + fresh}, lines); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	o.step("indexed")
	if err := swapIndex(index, fresh, before, info, o.step); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return nil
}

// swapIndex replaces the index by a file that is beside it, if it is still what it was.
func swapIndex(index, fresh string, before []byte, like fs.FileInfo, step func(string)) error {
	if err := give(fresh, like); err != nil {
		return err
	}
	lock := index + ".lock"
	if err := os.Link(fresh, lock); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s exists", errMoved, lock)
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
