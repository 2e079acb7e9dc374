package langsmith

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
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
	maxPattern = 4 << 10
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
	ctx   context.Context // of the request that the search lives for
	root  string
	limit int
}

// startSearch checks a request and finds the directory.
func (f *Face) startSearch(r *http.Request, box driver.Sandbox) (*searchRequest, *search, func(), error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	req := new(searchRequest)
	if err := decode(r, req); err != nil {
		return nil, nil, nil, err
	}
	s := &search{limit: maxMatches}
	switch {
	case req.Pattern == "":
		return nil, nil, nil, requestErrorf("pattern is empty")
	case len(req.Pattern) > maxPattern || len(req.Glob) > maxPattern:
		return nil, nil, nil, requestErrorf("the pattern is longer than %d bytes", maxPattern)
	case req.Limit != nil && *req.Limit < 1:
		return nil, nil, nil, requestErrorf("limit is %d; at least 1 is wanted", *req.Limit)
	case req.Limit != nil:
		s.limit = min(*req.Limit, maxMatches)
	}
	fsys, err := box.Files("")
	if err != nil {
		return nil, nil, nil, err
	}
	if s.root, err = fsys.Resolve(req.Path); err != nil {
		return nil, nil, nil, err
	}
	info, err := os.Stat(s.root)
	if err != nil {
		kind := error(nil)
		if errors.Is(err, fs.ErrNotExist) {
			kind = files.ErrNotExist
		} else if errors.Is(err, fs.ErrPermission) {
			kind = files.ErrPermission
		}
		return nil, nil, nil, &files.PathError{Op: "search", Path: s.root, Kind: kind, Err: err}
	}
	if !info.IsDir() {
		return nil, nil, nil, &problemError{problem{http.StatusBadRequest, kindRead, s.root + " is not a directory"}}
	}
	ctx, cancel := context.WithTimeout(r.Context(), searchTime)
	s.ctx = ctx
	return req, s, cancel, nil
}

// walk calls visit for all below the root, in lexical order. truncated: it was
// cut short by the time or by visit.
func (s *search) walk(visit func(rel string, d fs.DirEntry) error) (truncated bool, err error) {
	err = filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if err != nil {
			// Closed to the daemon, or gone meanwhile.
			if d != nil && d.IsDir() && p != s.root {
				return fs.SkipDir
			}
			return nil
		}
		if p == s.root {
			return nil
		}
		rel, err := filepath.Rel(s.root, p)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), d)
	})
	switch {
	case errors.Is(err, errEnough), errors.Is(err, context.DeadlineExceeded):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, nil
}

// glob finds files and directories by pattern: POST /glob.
func (f *Face) glob(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	req, s, cancel, err := f.startSearch(r, box)
	if err != nil {
		return err
	}
	defer cancel()
	pattern := strings.TrimPrefix(req.Pattern, "./")
	if !doublestar.ValidatePattern(pattern) {
		return requestErrorf("the pattern %.200q is malformed; **, *, ? and [..] have a meaning", req.Pattern)
	}
	deep := strings.Contains(pattern, "/") || strings.Contains(pattern, "**")
	matches := []globMatch{}
	truncated, err := s.walk(func(rel string, d fs.DirEntry) error {
		if doublestar.MatchUnvalidated(pattern, rel) {
			if len(matches) == s.limit {
				return errEnough
			}
			if info, err := d.Info(); err == nil {
				matches = append(matches, globMatch{
					Path: strings.ToValidUTF8(filepath.Join(s.root, rel), "\uFFFD"), IsDir: d.IsDir(), SizeBytes: info.Size(), ModifiedAt: stamp(info.ModTime()),
				})
			}
		}
		if d.IsDir() && !deep {
			return fs.SkipDir
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
	req, s, cancel, err := f.startSearch(r, box)
	if err != nil {
		return err
	}
	defer cancel()
	if req.Glob != "" && !doublestar.ValidatePattern(req.Glob) {
		return requestErrorf("the glob %.200q is malformed; **, *, ? and [..] have a meaning", req.Glob)
	}
	fsys, err := box.Files("")
	if err != nil {
		return err
	}
	matches := []grepMatch{}
	truncated, err := s.walk(func(rel string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || !globSelects(req.Glob, rel) {
			return nil
		}
		file, _, err := fsys.Open(filepath.Join(s.root, rel))
		if err != nil {
			return nil // gone, or closed to the daemon
		}
		defer file.Close()
		return s.grepFile(file, filepath.Join(s.root, rel), req.Pattern, &matches)
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
func (s *search) grepFile(file io.Reader, name, pattern string, matches *[]grepMatch) error {
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(sniff); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	want := []byte(pattern)
	var line []byte
	for n := 1; ; n++ {
		var err error
		line, err = readLine(r, line[:0])
		if len(line) > 0 && bytes.Contains(line, want) {
			if len(*matches) == s.limit {
				return errEnough
			}
			*matches = append(*matches, grepMatch{strings.ToValidUTF8(name, "\uFFFD"), n, shown(line)})
		}
		if err != nil {
			return nil // the end, or no longer readable
		}
		if n%4096 == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
}

// longestLine bounds the memory of one line that is searched.
const longestLine = 16 << 20

// readLine reads a line without its end, and drops what is longer than
// longestLine.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), longestLine-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

func shown(line []byte) string {
	return strings.ToValidUTF8(string(line[:min(len(line), maxLine)]), "\uFFFD")
}
