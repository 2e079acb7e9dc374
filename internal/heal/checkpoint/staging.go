package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

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
	var old *blob
	if inIndex {
		old = &staged.blob
	}
	s.tree, s.staged, s.unstage = append(s.tree, git.line(next, full)), append(s.staged, git.line(index, full)),
		append(s.unstage, git.line(old, full))
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

// line is one of update-index --index-info; nil: nothing is at the path.
func (r *repository) line(b *blob, full string) string {
	if b == nil {
		return "0 " + strings.Repeat("0", len(r.oid(nil))) + "\t" + full
	}
	return b.mode + " " + b.oid + "\t" + full
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
// ignores: the bytes of such a file may not be committed. now is what the work tree holds.
func (r *repository) converted(ctx context.Context, prefix string, paths []name, now tree) (map[name]string, error) {
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
		if now.beyondLink(path) {
			continue // what was there is gone; git refuses the whole question
		}
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
