package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Commit says what to commit.
type Commit struct {
	Message  string            // its first line is the subject
	Trailers map[string]string // such as Heal-Id
	Paths    []string          // of the changes, those to commit; nil: all
	// Overlap also commits lines that the healer edited and that were not committed before.
	// Without it, a file with such lines is left out. A JSON file that could not be read
	// before, and whose repaired lines are those of the last commit, is committed as a
	// whole.
	Overlap bool
}

// Committed is the result of Commit.
type Committed struct {
	Hash  string   // of the commit; "": there was nothing to commit
	Paths []string // what it changes
	Left  []Left   // changes of the healer that are not committed
}

// errMoved says that the index or the branch changed while a commit was made.
var errMoved = errors.New("somebody else has committed or staged something at this moment")

// Commit commits the healer's changes, and nothing else: uncommitted changes of the user
// stay uncommitted, staged ones stay staged. The author is "tend healer"; no hook runs, and
// nothing is signed. During an operation of git, such as a merge, and without git, nothing
// is committed, and Left says why. A detached HEAD is moved. Called again after a kill, it
// comes to the same end.
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
	if err := p.git.Disarm(ctx); err != nil {
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
	if s.strange, err = p.git.converted(ctx, p.git.prefix, changes, now); err != nil {
		return done, err
	}
	for _, at := range changes {
		for _, e := range []*entry{p.base[at], now[at]} {
			if e != nil && e.Kind == file && p.git.Secret(e.UID, uint32(e.Mode.Perm())) {
				s.strange[at] = "the owner of the repository may not read it"
			}
		}
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
	hash, err := p.git.commitTree(ctx, p.git.treeIndex(p.path("tree.index"), p.opts.ID), head, s.tree, message(c))
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

// looksBack is how many commits Made looks at.
const looksBack = 100

// Made finds a commit with these trailers among the newest ones: its author may have died
// before it reported it. hash is "" if there is none.
func (p *Point) Made(ctx context.Context, trailers map[string]string) (hash string, paths []string, err error) {
	if p.git == nil || len(trailers) == 0 {
		return "", nil, nil
	}
	if head, _, err := p.git.head(ctx); head == "" {
		return "", nil, err
	}
	out, err := p.git.run(ctx, nil, nil, "log", fmt.Sprintf("-%d", looksBack), "-z", "--format=%H%n%(trailers:only,unfold)", "HEAD")
	if err != nil {
		return "", nil, err
	}
	for _, rec := range records(out) {
		id, rest, _ := strings.Cut(rec, "\n")
		lines := strings.Split(rest, "\n")
		all := true
		for key, value := range trailers {
			all = all && slices.Contains(lines, key+": "+strings.Join(strings.Fields(value), " "))
		}
		if !all {
			continue
		}
		out, err := p.git.run(ctx, nil, nil, "diff-tree", "-r", "-z", "--no-renames", "--no-commit-id", "--name-only", id)
		for _, path := range records(out) {
			if rel, ok := strings.CutPrefix(path, p.git.prefix); ok {
				paths = append(paths, rel)
			}
		}
		return id, paths, err
	}
	return "", nil, nil
}

func message(c Commit) []byte {
	clean := func(s string) string { // people's terminals show it
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				return -1
			}
			return r
		}, strings.ToValidUTF8(s, "?"))
	}
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
