package distant

import (
	"context"
	"math"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/lib/saferegexp"
	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

const (
	// maxSearches bounds the searches of one client that run at once.
	maxSearches = 16
	// maxPattern bounds the regular expression of a search in bytes.
	maxPattern = 64 << 10
	// searchBatch is how many results go together if the client does not say.
	searchBatch = 100
)

// query is what a search looks for.
type query struct {
	contents         bool
	condition        *saferegexp.Regexp
	include, exclude *saferegexp.Regexp // of paths; nil: none
	paths            []string
	types            []string // dir, file, symlink; empty: all
	upward, follow   bool
	hidden           bool   // hidden files, too
	limit            uint64 // results
	depth            uint64
	batch            uint64
}

// match is one result.
type match struct {
	path   string
	line   []byte // nil: of the path itself
	number int
	offset int64
	at     [][]int // places in the path or the line
}

// textOf returns text as a string if it is UTF-8, else as bytes.
func textOf(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return b
}

func (m *match) message() wire.Map {
	places, text := wire.List{}, m.line
	out := wire.Map{"type", "contents", "path", m.path, "lines", textOf(m.line), "line_number", int64(m.number), "absolute_offset", m.offset}
	if m.line == nil {
		out, text = wire.Map{"type", "path", "path", m.path}, []byte(m.path)
	}
	for _, at := range m.at {
		places = append(places, wire.Map{"match", textOf(text[at[0]:at[1]]), "start", int64(at[0]), "end", int64(at[1])})
	}
	return append(out, "submatches", places)
}

// search is a search that runs. It is a [source]: it waits while nobody
// listens.
type search struct {
	id      uint32
	origin  origin
	cancel  context.CancelFunc
	results chan message // closed at the end
	pending message      // belongs to the run
}

// run implements [source].
func (s *search) run(ctx context.Context, c *client) bool {
	for {
		if s.pending == nil {
			select {
			case m, more := <-s.results:
				if !more {
					m = idMessage("search_done", s.id)
					if c.out.event(s.origin, m) != nil {
						return false
					}
					c.searched(s)
					return true
				}
				s.pending = m
			case <-ctx.Done():
				return false
			}
		}
		if c.out.event(s.origin, s.pending) != nil {
			return false
		}
		s.pending = nil
	}
}

func (c *client) searched(s *search) {
	c.mu.Lock()
	delete(c.searches, s.id)
	c.mu.Unlock()
	if c.keys != nil {
		c.keys.searching(journal.Search{ID: s.id, Removed: true})
	}
}

func (r *fileRequest) search() (message, func(), error) {
	q, err := r.query()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(r.c.ctx)
	s := &search{origin: r.call.origin, cancel: cancel, results: make(chan message, 1)}
	r.c.mu.Lock()
	if len(r.c.searches) >= maxSearches {
		r.c.mu.Unlock()
		cancel()
		return nil, nil, faultf(kindWouldBlock, "%d searches run already; cancel one", maxSearches)
	}
	for s.id = randomID(); r.c.searches[s.id] != nil; s.id = randomID() {
	}
	r.c.searches[s.id] = s
	r.c.mu.Unlock()
	if r.c.keys != nil {
		r.c.keys.searching(journal.Search{ID: s.id, Origin: s.origin.id})
	}
	return idMessage("search_started", s.id), func() {
		r.c.works.Go(func() {
			defer cancel()
			defer close(s.results)
			q.walk(ctx, r.c.face.fs, s.id, s.results)
		})
		r.c.add(s)
	}, nil
}

func (r *fileRequest) cancelSearch() (message, error) {
	id := r.f.id()
	if err := r.f.end(); err != nil {
		return nil, err
	}
	r.c.mu.Lock()
	s := r.c.searches[id]
	r.c.mu.Unlock()
	if s == nil {
		return nil, faultf(kindNotFound, "no search with id %d runs", id)
	}
	s.cancel()
	return okMessage, nil
}

// endSearches reports to the client the searches that ended with a server.
func (c *client) endSearches(searches map[uint32]journal.Search) {
	for id, js := range searches {
		results := make(chan message)
		close(results)
		c.add(&search{id: id, origin: origin{id: js.Origin}, results: results})
	}
}

// query reads the request. Its maps are open in the original, but for the
// conditions.
func (r *fileRequest) query() (*query, error) {
	f := r.f.needObject("query")
	q := &query{hidden: true, limit: math.MaxInt64, depth: math.MaxInt32, batch: searchBatch}
	switch target := f.str("target"); target {
	case "contents":
		q.contents = true
	case "path", "":
	default:
		return nil, faultf(kindInvalidInput, "%.40q is nothing to search in; write path or contents", target)
	}
	var err error
	if q.condition, err = condition(f, "condition"); err != nil {
		return nil, err
	}
	if q.condition == nil && f.err == nil {
		return nil, &wire.Error{Field: "query.condition", Reason: "is missing"}
	}
	for _, p := range f.strs("paths") {
		abs, err := r.fs.Resolve(r.c.face.abs(p))
		if err != nil {
			return nil, err
		}
		q.paths = append(q.paths, abs)
	}
	if o := f.object("options"); o != nil {
		if err := q.options(o); err != nil {
			return nil, err
		}
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	return q, r.f.end()
}

func (q *query) options(o *fields) (err error) {
	q.types = o.strs("allowed_file_types")
	if q.include, err = condition(o, "include"); err != nil {
		return err
	}
	if q.exclude, err = condition(o, "exclude"); err != nil {
		return err
	}
	q.upward, q.follow = o.flag("upward"), o.flag("follow_symbolic_links")
	q.limit = o.optUint("limit", q.limit, math.MaxInt64)
	q.depth = min(q.depth, o.optUint("max_depth", q.depth, math.MaxUint64))
	q.batch = min(max(1, o.optUint("pagination", q.batch, math.MaxUint64)), 10_000)
	q.hidden = !o.flag("ignore_hidden")
	for _, name := range []string{"use_ignore_files", "use_parent_ignore_files", "use_git_ignore_files", "use_global_git_ignore_files",
		"use_git_exclude_files"} {
		if o.flag(name) {
			return faultf(kindUnsupported, "the search option %s is unsupported", name)
		}
	}
	return o.done()
}

// condition reads a condition as a regular expression; nil if it is absent.
func condition(f *fields, name string) (*saferegexp.Regexp, error) {
	c := f.object(name)
	if c == nil {
		return nil, f.err
	}
	text, err := expression(c)
	if err != nil {
		return nil, err
	}
	if len(text) > maxPattern {
		return nil, faultf(kindInvalidInput, "the condition has more than %d KiB", maxPattern>>10)
	}
	re, err := saferegexp.Compile(text)
	if err != nil {
		return nil, faultf(kindInvalidInput, "the condition %v", err)
	}
	return re, nil
}

func expression(c *fields) (string, error) {
	typ := c.str("type")
	if typ == "or" {
		v := c.need("value")
		if v == nil {
			return "", c.err
		}
		var parts []string
		for _, v := range decoded(c, "value", v, wire.Value.Array) {
			text, err := expression(fieldsOf(v, c.at))
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, "|"), c.end()
	}
	value := c.str("value")
	if err := c.end(); err != nil {
		return "", err
	}
	quoted := regexp.QuoteMeta(value)
	switch typ {
	case "contains":
		return quoted, nil
	case "ends_with":
		return quoted + "$", nil
	case "equals":
		return "^" + quoted + "$", nil
	case "starts_with":
		return "^" + quoted, nil
	case "regex":
		return value, nil
	}
	return "", faultf(kindInvalidInput, "%.40q is no condition", typ)
}
