package langsmith

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	// maxMatches is the most matches of one search, and the default.
	maxMatches = 10_000
	// maxLine bounds the text of a match in bytes; a longer line is cut.
	maxLine = 4 << 10
	// searchTime bounds one search; what was found until then is reported as
	// truncated. The SDKs give up after 60 s.
	searchTime = 50 * time.Second
	// searchBytes bounds what one search reads, in bytes; it ends as truncated,
	// too.
	searchBytes = 64 << 30
	maxPattern  = 4 << 10
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

// search is a search below a directory.
type search struct {
	fs    driver.Files
	root  string
	query files.Query
}

// startSearch checks a request and finds the directory.
func (f *Face) startSearch(r *http.Request, box driver.Sandbox) (*searchRequest, *search, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	req := new(searchRequest)
	if err := decode(r, req); err != nil {
		return nil, nil, err
	}
	s := &search{query: files.Query{Limit: maxMatches, MaxLine: maxLine, MaxBytes: searchBytes}}
	switch {
	case req.Pattern == "":
		return nil, nil, requestErrorf("pattern is empty")
	case len(req.Pattern) > maxPattern || len(req.Glob) > maxPattern:
		return nil, nil, requestErrorf("the pattern is longer than %d bytes", maxPattern)
	case req.Limit != nil && *req.Limit < 1:
		return nil, nil, requestErrorf("limit is %d; at least 1 is wanted", *req.Limit)
	case req.Limit != nil:
		s.query.Limit = min(*req.Limit, maxMatches)
	}
	var err error
	if s.fs, err = box.Files("", ""); err != nil {
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
	if files.Alternatives(glob) > files.MaxAlternatives {
		return requestErrorf("the %s %.200q stands for more than %d patterns, which is the limit; use fewer braces", field,
			glob, files.MaxAlternatives)
	}
	return nil
}

// run searches within the time that there is.
func (s *search) run(ctx context.Context) ([]files.Match, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	matches, truncated, err := s.fs.Search(ctx, s.root, s.query)
	if pe, ok := errors.AsType[*files.PathError](err); ok && pe.Op == "search" && errors.Is(err, files.ErrNotDir) {
		err = &problem{http.StatusBadRequest, kindRead, s.root + " is not a directory"}
	}
	return matches, truncated, err
}

// glob finds files and directories by pattern: POST /glob.
func (f *Face) glob(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	req, s, err := f.startSearch(r, box)
	if err != nil {
		return err
	}
	s.query.Glob = strings.TrimPrefix(req.Pattern, "./")
	if err := checkGlob("pattern", s.query.Glob); err != nil {
		return err
	}
	found, truncated, err := s.run(r.Context())
	if err != nil {
		return err
	}
	matches := make([]globMatch, 0, len(found))
	for _, m := range found {
		matches = append(matches, globMatch{
			Path: strings.ToValidUTF8(m.Path, "\uFFFD"), IsDir: m.Info.IsDir(), SizeBytes: m.Info.Size(), ModifiedAt: stamp(m.Info.ModTime()),
		})
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
	s.query.Glob, s.query.Text = anywhere(req.Glob), req.Pattern
	found, truncated, err := s.run(r.Context())
	if err != nil {
		return err
	}
	matches := make([]grepMatch, 0, len(found))
	for _, m := range found {
		matches = append(matches, grepMatch{strings.ToValidUTF8(m.Path, "\uFFFD"), m.Line, strings.ToValidUTF8(string(m.Text), "\uFFFD")})
	}
	writeJSON(w, http.StatusOK, map[string]any{"matches": matches, "truncated": truncated})
	return nil
}

// anywhere: a pattern without a slash is for base names at any depth.
func anywhere(glob string) string {
	if glob != "" && !strings.Contains(glob, "/") && !strings.Contains(glob, "**") {
		return "**/" + glob
	}
	return strings.TrimPrefix(glob, "./")
}
