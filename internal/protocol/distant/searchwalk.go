package distant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// errEnough: the limit of results is reached.
var errEnough = errors.New("enough results")

// searcher collects the results of one search.
type searcher struct {
	q     *query
	a     *files.Actor
	ctx   context.Context // of the one search that it lives for
	id    uint32
	out   chan<- message
	found wire.List
	left  uint64
	seen  map[string]bool // directories behind links
}

// walk sends what it finds to out. It returns at the end, or when ctx ends.
func (q *query) walk(ctx context.Context, fs fileSystem, id uint32, out chan<- message) {
	s := &searcher{q: q, ctx: ctx, id: id, out: out, left: q.limit, seen: map[string]bool{}}
	// The error says why the search ended early; the client gets the end.
	_ = fs.Do(ctx, func(a *files.Actor) error {
		s.a = a
		for _, path := range q.paths {
			if err := s.root(path); err != nil {
				return err
			}
		}
		return nil
	})
	s.send()
}

// flush hands the results on, with no thread held meanwhile: the client may
// take its time.
func (s *searcher) flush() error { return s.a.Pause(s.send) }

func (s *searcher) send() {
	if len(s.found) == 0 {
		return
	}
	select {
	case s.out <- wire.Map{"type", "search_results", "id", s.id, "matches", s.found}:
	case <-s.ctx.Done():
	}
	s.found = nil
}

func (s *searcher) add(m match) error {
	if s.left == 0 {
		return errEnough
	}
	s.left--
	s.found = append(s.found, m.message())
	if uint64(len(s.found)) >= s.q.batch {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if s.left == 0 {
		return errEnough
	}
	return s.ctx.Err()
}

func (s *searcher) root(path string) error {
	if !s.q.upward {
		return s.visit(path, 0, s.q.depth)
	}
	if info, err := s.a.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	// The entries of the directory, and of each one above.
	for depth := uint64(0); depth <= s.q.depth; depth++ {
		if err := s.visit(path, 0, 1); err != nil {
			return err
		}
		if path == "/" {
			break
		}
		path = filepath.Dir(path)
	}
	return nil
}

// visit looks at a path, and below it down to the depth. What cannot be read
// is left out, as a search does.
func (s *searcher) visit(path string, depth, deepest uint64) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	info, err := s.a.Lstat(path)
	if err != nil {
		return nil
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 && s.q.follow {
		if target, err := s.a.Stat(path); err == nil {
			mode = target.Mode()
		}
	}
	if depth > 0 && !s.q.hidden && strings.HasPrefix(filepath.Base(path), ".") {
		return nil
	}
	if err := s.matchFile(path, mode); err != nil {
		return err
	}
	if !mode.IsDir() || depth >= deepest || s.again(path) {
		return nil
	}
	children, err := s.a.Names(path)
	if err != nil {
		return nil
	}
	for _, child := range children {
		if err := s.visit(filepath.Join(path, child.Name), depth+1, deepest); err != nil {
			return err
		}
	}
	return nil
}

// again reports whether a directory was visited before, by way of a link.
func (s *searcher) again(path string) bool {
	if !s.q.follow {
		return false
	}
	real, err := s.a.Real(path)
	if err != nil || s.seen[real] {
		return true
	}
	s.seen[real] = true
	return false
}

// matchFile matches one path.
func (s *searcher) matchFile(path string, mode fs.FileMode) error {
	if len(s.q.types) > 0 && !slices.Contains(s.q.types, typeName(mode)) ||
		s.q.include != nil && !s.q.include.MatchString(path) || s.q.exclude != nil && s.q.exclude.MatchString(path) {
		return nil
	}
	if s.q.contents {
		if !mode.IsRegular() {
			return nil
		}
		return s.contents(path)
	}
	name := strings.ToValidUTF8(path, "\uFFFD")
	if at := s.q.condition.FindAll([]byte(name), maxSubmatches); len(at) > 0 {
		return s.add(match{path: name, at: at})
	}
	return nil
}

// maxSubmatches bounds the places that are reported of one line.
const maxSubmatches = 1000

// contents looks through the lines of a file, up to the first NUL byte, behind
// which a file is no text. Lines that are longer than a piece are looked at in
// pieces.
func (s *searcher) contents(path string) error {
	file, _, err := s.a.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, s.q.condition.Piece())
	var offset int64
	for number := 1; ; {
		line, err := in.ReadSlice('\n')
		if bytes.IndexByte(line, 0) >= 0 {
			return nil
		}
		if len(line) > 0 {
			if at := s.q.condition.FindAll(bytes.TrimSuffix(line, []byte("\n")), maxSubmatches); len(at) > 0 {
				m := match{path: strings.ToValidUTF8(path, "\uFFFD"), line: bytes.Clone(line), number: number, offset: offset, at: at}
				if err := s.add(m); err != nil {
					return err
				}
			}
		}
		offset += int64(len(line))
		switch {
		case err == nil:
			number++
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil // it cannot be read any more
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
}
