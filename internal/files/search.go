package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	// sniff is how much of a file is looked at for a NUL byte: files that have
	// one are not text, and not searched.
	sniff = 8 << 10
	// longestLine bounds the memory of one line that is searched, in bytes.
	longestLine = 16 << 20
)

// Query says what [FS.Search] finds. It is plain data, so that a search can run
// where the files are.
type Query struct {
	// Glob selects paths relative to the directory: **, *, ?, [..] and {..,..}
	// have a meaning. It must be well-formed (doublestar.ValidatePattern). Empty:
	// all paths. One without a slash and without ** selects in the directory
	// itself alone.
	Glob string
	// Text finds the lines of regular files that hold it. Empty: the paths
	// themselves are found.
	Text string
	// Limit is the most matches.
	Limit int
	// MaxLine bounds Match.Text in bytes; a longer line is cut.
	MaxLine int
	// MaxBytes bounds what is read.
	MaxBytes int64
}

// MaxAlternatives is how many patterns one with braces may stand for where a client has
// sent it: a path is compared with each, which nothing breaks off.
const MaxAlternatives = 256

// Alternatives is at least the number of patterns without braces that one
// stands for: that of its braces and commas if they are shared out evenly,
// however they nest. A product is never larger than that of equal factors.
func Alternatives(glob string) float64 {
	groups, commas := float64(strings.Count(glob, "{")), float64(strings.Count(glob, ","))
	if groups == 0 {
		return 1
	}
	return math.Pow(commas/groups+1, groups)
}

// Match is a path that was found, or a line of it.
type Match struct {
	Path string      // absolute
	Info fs.FileInfo // of the path, of a link the link; nil for a line
	Line int         // from 1
	Text []byte      // without the end of the line
}

var errEnough = errors.New("enough was found")

// Search finds matches below a directory, in lexical order. It follows no links, and
// omits what the user may not enter or read. truncated: there may be more, because a
// limit of the query or the deadline of ctx was reached.
func (f FS) Search(ctx context.Context, dir string, q Query) (matches []Match, truncated bool, err error) {
	root, err := f.Resolve(dir)
	if err != nil {
		return nil, false, err
	}
	s := &search{q: q, left: q.MaxBytes}
	err = f.Do(ctx, func(a *Actor) error {
		s.a = a
		info, err := a.Stat(root)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &PathError{Op: "search", Path: root, Kind: ErrNotDir}
		}
		flat := q.Glob != "" && !strings.Contains(q.Glob, "/") && !strings.Contains(q.Glob, "**")
		return a.Walk(root, func(path string, typ fs.FileMode) error {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if q.Glob == "" || doublestar.MatchUnvalidated(q.Glob, filepath.ToSlash(rel)) {
				if err := s.visit(path, typ); err != nil {
					return err
				}
			}
			if typ.IsDir() && flat {
				return SkipDir
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTooMany) {
		return s.matches, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	return s.matches, false, nil
}

// search is one call of Search.
type search struct {
	q       Query
	a       *Actor
	left    int64 // bytes that may be read
	matches []Match
}

// visit looks at a path that the glob selects.
func (s *search) visit(path string, typ fs.FileMode) error {
	if s.q.Text == "" {
		if len(s.matches) == s.q.Limit {
			return errEnough
		}
		if info, err := s.a.Lstat(path); err == nil {
			s.matches = append(s.matches, Match{Path: path, Info: info})
		}
		return nil
	}
	if !typ.IsRegular() {
		return nil
	}
	file, _, err := s.a.Open(path)
	if err != nil {
		return nil // gone, or closed to the user
	}
	defer file.Close()
	return s.lines(file, path)
}

// lines adds the matches of one file.
func (s *search) lines(file io.Reader, path string) error {
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(sniff); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	want := []byte(s.q.Text)
	var line []byte
	for n := 1; ; n++ {
		var err error
		line, err = s.readLine(r, line[:0])
		if len(line) > 0 && bytes.Contains(line, want) {
			if len(s.matches) == s.q.Limit {
				return errEnough
			}
			s.matches = append(s.matches, Match{Path: path, Line: n, Text: bytes.Clone(line[:min(len(line), s.q.MaxLine)])})
		}
		if err := s.a.Err(); err != nil {
			return err
		}
		if errors.Is(err, errEnough) {
			return err
		}
		if err != nil {
			return nil // the end, or no longer readable
		}
	}
}

// readLine reads a line without its end, and drops what is longer than
// longestLine. A line may be a hole of terabytes: it ends with the search, too.
func (s *search) readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), longestLine-len(line))]...)
		if s.left -= int64(len(part)); s.left < 0 {
			return line, errEnough
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
		if err := s.a.Err(); err != nil {
			return line, err
		}
	}
}
