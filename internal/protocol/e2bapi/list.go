package e2bapi

import (
	"cmp"
	"encoding/base64"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	maxPage    = 100
	nextHeader = "X-Next-Token"
)

// metadataOf reads the metadata that a list asks for. The SDKs encode each name and
// value, then all of them as a query, and then that as one value of the query: three
// layers, of which r.URL.Query takes away the last.
func metadataOf(q url.Values) (map[string]string, error) {
	text := q.Get("metadata")
	if text == "" {
		return nil, nil
	}
	pairs, err := url.ParseQuery(text)
	if err != nil {
		return nil, badRequest("metadata is no encoded query of the form name=value&name=value: %v", err)
	}
	if len(pairs) > driver.MaxMetadata {
		return nil, badRequest("metadata has %d entries; the limit is %d", len(pairs), driver.MaxMetadata)
	}
	want := make(map[string]string, len(pairs))
	for name, values := range pairs {
		key, err1 := url.PathUnescape(name)
		value, err2 := url.PathUnescape(values[0])
		if err := cmp.Or(err1, err2); err != nil {
			return nil, badRequest("metadata has a name or value that is not encoded: %v", err)
		}
		want[key] = value
	}
	return want, nil
}

func hasMetadata(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// listQuery is what a list asks for.
type listQuery struct {
	metadata map[string]string
	states   map[string]bool // nil: all
	after    time.Time
	template string
	page     page
}

func queryOf(q url.Values) (*listQuery, error) {
	l := &listQuery{template: q.Get("template")}
	var err error
	if l.metadata, err = metadataOf(q); err != nil {
		return nil, err
	}
	for _, list := range q["state"] {
		for state := range strings.SplitSeq(list, ",") {
			if state != "running" && state != "paused" {
				return nil, badRequest("state is %.40q; running and paused are allowed", state)
			}
			if l.states == nil {
				l.states = map[string]bool{}
			}
			l.states[state] = true
		}
	}
	if text := q.Get("startedAfter"); text != "" {
		if l.after, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, badRequest("startedAfter is %.40q; a time as 2026-01-02T15:04:05Z is wanted", text)
		}
	}
	l.page, err = pageOf(q)
	return l, err
}

func (l *listQuery) takes(info *driver.Info) bool {
	return (l.states == nil || l.states[stateOf(info.State)]) && hasMetadata(info.Metadata, l.metadata) && !info.Created.Before(l.after) &&
		(l.template == "" || l.template == templateOf(info) || l.template == info.Template || l.template == info.TemplateID)
}

func (f *Face) list(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r.URL.Query())
	if err != nil {
		return err
	}
	infos, err := f.driver.List(r.Context())
	if err != nil {
		return err
	}
	infos = slices.DeleteFunc(infos, func(i driver.Info) bool { return !q.takes(&i) })
	infos, next := cut(infos, &q.page, func(i *driver.Info) (time.Time, string) { return i.Created, string(i.ID) })
	return f.writeList(w, infos, next)
}

// listRunning is the list of old: all that run, in one page.
func (f *Face) listRunning(w http.ResponseWriter, r *http.Request) error {
	want, err := metadataOf(r.URL.Query())
	if err != nil {
		return err
	}
	infos, err := f.driver.List(r.Context())
	if err != nil {
		return err
	}
	return f.writeList(w, slices.DeleteFunc(infos, func(i driver.Info) bool { return !running(i.State) || !hasMetadata(i.Metadata, want) }),
		"")
}

func (f *Face) writeList(w http.ResponseWriter, infos []driver.Info, next string) error {
	list := make([]listed, len(infos))
	for i := range infos {
		list[i] = f.listedJSON(&infos[i])
	}
	if next != "" {
		w.Header().Set(nextHeader, next)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// page is a part of a list. The token of the next one has time and ID of the last
// entry, so that pages hold while entries come and go.
type page struct {
	limit    int
	ascend   bool
	follow   bool // the fields below count
	lastTime int64
	lastID   string
}

func pageOf(q url.Values) (page, error) {
	p := page{limit: maxPage}
	limit, given, err := number(q, "limit", 1, maxPage)
	if err != nil {
		return p, err
	}
	if given {
		p.limit = int(limit)
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		p.ascend = true
	default:
		return p, badRequest("order is %.40q; asc and desc are allowed", order)
	}
	token := q.Get("nextToken")
	if token == "" {
		return p, nil
	}
	wrong := badRequest("nextToken is none of this server; leave it out to start again")
	if len(token) > 200 {
		return p, wrong
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	at, id, ok := strings.Cut(string(b), ",")
	if err != nil || !ok || !driver.LikeID(id) {
		return p, wrong
	}
	p.follow, p.lastID = true, id
	if p.lastTime, err = strconv.ParseInt(at, 10, 64); err != nil {
		return p, wrong
	}
	return p, nil
}

func tokenOf(at time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at.UnixNano(), 10) + "," + id))
}

// cut sorts a list and returns a page of it, and the token of the next; "": there is
// none.
func cut[T any](list []T, p *page, key func(*T) (time.Time, string)) ([]T, string) {
	compare := func(at1 int64, id1 string, at2 int64, id2 string) int {
		c := cmp.Or(cmp.Compare(at1, at2), cmp.Compare(id1, id2))
		if p.ascend {
			return c
		}
		return -c
	}
	sort.Slice(list, func(i, j int) bool { // slices.SortFunc is compiled for each type
		at1, id1 := key(&list[i])
		at2, id2 := key(&list[j])
		return compare(at1.UnixNano(), id1, at2.UnixNano(), id2) < 0
	})
	if p.follow {
		i := slices.IndexFunc(list, func(v T) bool {
			at, id := key(&v)
			return compare(at.UnixNano(), id, p.lastTime, p.lastID) > 0
		})
		if i < 0 {
			i = len(list)
		}
		list = list[i:]
	}
	if len(list) <= p.limit {
		return list, ""
	}
	at, id := key(&list[p.limit-1])
	return list[:p.limit], tokenOf(at, id)
}

// number reads a whole number of a query.
func number(q url.Values, name string, least, most int64) (n int64, given bool, err error) {
	text := q.Get(name)
	if text == "" {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		if most == math.MaxInt64 {
			return 0, false, badRequest("%s is %.40q; a whole number from %d on is wanted", name, text, least)
		}
		return 0, false, badRequest("%s is %.40q; a whole number from %d to %d is wanted", name, text, least, most)
	}
	return n, true, nil
}
