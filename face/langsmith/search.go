package langsmith

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/files"
)

const (
	// maxMatches is the most matches of one search, and the default.
	maxMatches = 10_000
	// maxLine bounds the text of a match in bytes; a longer line is cut.
	maxLine = 4 << 10
	// sniff is how much of a file is looked at for a NUL byte: files that have
	// one are not text, and not searched.
	sniff = 8 << 10
	// searchTime bounds one search; what was found until then is told as
	// truncated. The SDKs give up after 60 s.
	searchTime = 50 * time.Second
	// searchBytes bounds what one search reads, in bytes; it ends as truncated,
	// too.
	searchBytes = 64 << 30
	maxPattern  = 4 << 10
	// maxAlternatives bounds the patterns that one with braces stands for.
	maxAlternatives = 256
)

type searchRequest struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Glob    string `json:"glob"`
	Limit   *int   `json:"limit"`
}

type globMatch struct {
	Path       string `json:"path"`
	IsDir      bool   `json:"is_dir"`
	SizeBytes  int64  `json:"size_bytes"`
	ModifiedAt string `json:"modified_at"`
}

type grepMatch struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

var errEnough = errors.New("enough was found")

// search is one walk below a directory.
type search struct {
	fs    files.FS
	root  string
	limit int
	left  int64 // bytes that may be read
}

// startSearch checks a request and finds the directory.
func (f *Face) startSearch(r *http.Request, box driver.Sandbox) (*searchRequest, *search, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	req := new(searchRequest)
	if err := decode(r, req); err != nil {
		return nil, nil, err
	}
	s := &search{limit: maxMatches, left: searchBytes}
	switch {
	case req.Pattern == "":
		return nil, nil, requestErrorf("pattern is empty")
	case len(req.Pattern) > maxPattern || len(req.Glob) > maxPattern:
		return nil, nil, requestErrorf("the pattern is longer than %d bytes", maxPattern)
	case req.Limit != nil && *req.Limit < 1:
		return nil, nil, requestErrorf("limit is %d; at least 1 is wanted", *req.Limit)
	case req.Limit != nil:
		s.limit = min(*req.Limit, maxMatches)
	}
	var err error
	if s.fs, err = box.Files(""); err != nil {
		return nil, nil, err
	}
	s.root, err = s.fs.Resolve(req.Path)
	return req, s, err
}

// checkGlob refuses a glob that means nothing, or too much.
func checkGlob(field, glob string) error {
	if !doublestar.ValidatePattern(glob) {
		return requestErrorf("the %s %.200q is malformed; **, *, ?, [..] and {..,..} have a meaning", field, glob)
	}
	if alternatives(glob) > maxAlternatives {
		return requestErrorf("the %s %.200q stands for more than %d patterns, which is the limit; use fewer braces", field, glob, maxAlternatives)
	}
	return nil
}

// alternatives is at least the number of patterns without braces that one
// stands for: that of its braces and commas if they are shared out evenly,
// however they nest. A product is never larger than that of equal factors.
func alternatives(glob string) float64 {
	groups, commas := float64(strings.Count(glob, "{")), float64(strings.Count(glob, ","))
	if groups == 0 {
		return 1
	}
	return math.Pow(commas/groups+1, groups)
}

// walk calls visit for all below the root, in lexical order. truncated: it was
// cut short by the time or by visit.
func (s *search) walk(ctx context.Context, visit func(a *files.Actor, path, rel string, typ fs.FileMode) error) (truncated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	err = s.fs.Do(ctx, func(a *files.Actor) error {
		info, err := a.Stat(s.root)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &problemError{problem{http.StatusBadRequest, kindRead, s.root + " is not a directory"}}
		}
		return a.Walk(s.root, func(path string, typ fs.FileMode) error {
			rel, err := filepath.Rel(s.root, path)
			if err != nil {
				return err
			}
			return visit(a, path, filepath.ToSlash(rel), typ)
		})
	})
	switch {
	case errors.Is(err, errEnough), errors.Is(err, context.DeadlineExceeded), errors.Is(err, files.ErrTooMany):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, nil
}

// glob finds files and directories by pattern: POST /glob.
func (f *Face) glob(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	req, s, err := f.startSearch(r, box)
	if err != nil {
		return err
	}
	pattern := strings.TrimPrefix(req.Pattern, "./")
	if err := checkGlob("pattern", pattern); err != nil {
		return err
	}
	deep := strings.Contains(pattern, "/") || strings.Contains(pattern, "**")
	matches := []globMatch{}
	truncated, err := s.walk(r.Context(), func(a *files.Actor, path, rel string, typ fs.FileMode) error {
		if doublestar.MatchUnvalidated(pattern, rel) {
			if len(matches) == s.limit {
				return errEnough
			}
			if info, err := a.Lstat(path); err == nil {
				matches = append(matches, globMatch{
					Path: strings.ToValidUTF8(path, "\uFFFD"), IsDir: typ.IsDir(), SizeBytes: info.Size(), ModifiedAt: stamp(info.ModTime()),
				})
			}
		}
		if typ.IsDir() && !deep {
			return files.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"matches": matches, "truncated": truncated})
	return nil
}

// grep finds lines that hold a literal text: POST /grep.
func (f *Face) grep(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	req, s, err := f.startSearch(r, box)
	if err != nil {
		return err
	}
	if err := checkGlob("glob", req.Glob); err != nil {
		return err
	}
	matches := []grepMatch{}
	truncated, err := s.walk(r.Context(), func(a *files.Actor, path, rel string, typ fs.FileMode) error {
		if !typ.IsRegular() || !globSelects(req.Glob, rel) {
			return nil
		}
		file, _, err := a.Open(path)
		if err != nil {
			return nil // gone, or closed to the user
		}
		defer file.Close()
		return s.grepFile(a, file, path, req.Pattern, &matches)
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"matches": matches, "truncated": truncated})
	return nil
}

// globSelects: a pattern without a slash is for base names at any depth.
func globSelects(glob, rel string) bool {
	switch {
	case glob == "":
		return true
	case !strings.Contains(glob, "/") && !strings.Contains(glob, "**"):
		return doublestar.MatchUnvalidated(glob, path.Base(rel))
	}
	return doublestar.MatchUnvalidated(strings.TrimPrefix(glob, "./"), rel)
}

// grepFile adds the matches of one file.
func (s *search) grepFile(a *files.Actor, file io.Reader, name, pattern string, matches *[]grepMatch) error {
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(sniff); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	want := []byte(pattern)
	var line []byte
	for n := 1; ; n++ {
		var err error
		line, err = s.readLine(a, r, line[:0])
		if len(line) > 0 && bytes.Contains(line, want) {
			if len(*matches) == s.limit {
				return errEnough
			}
			*matches = append(*matches, grepMatch{strings.ToValidUTF8(name, "\uFFFD"), n, shown(line)})
		}
		if err := a.Err(); err != nil {
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

// longestLine bounds the memory of one line that is searched.
const longestLine = 16 << 20

// readLine reads a line without its end, and drops what is longer than
// longestLine. A line may be a hole of terabytes: it ends with the search, too.
func (s *search) readLine(a *files.Actor, r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), longestLine-len(line))]...)
		if s.left -= int64(len(part)); s.left < 0 {
			return line, errEnough
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
		if err := a.Err(); err != nil {
			return line, err
		}
	}
}

func shown(line []byte) string {
	return strings.ToValidUTF8(string(line[:min(len(line), maxLine)]), "\uFFFD")
}
