package langsmith

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// maxPage is the most boxes of one page.
const maxPage = 1000

// number reads a parameter that is a number from least on.
func number(q url.Values, name string, least int) (n int, given bool, err error) {
	v := q.Get(name)
	if v == "" {
		return 0, false, nil
	}
	n, err = strconv.Atoi(v)
	if err != nil || n < least {
		return 0, false, requestErrorf("%s is %.40q; a whole number from %d on is wanted", name, v, least)
	}
	return n, true, nil
}

// listBoxes returns all boxes, or a page of those that the query asks for. The
// SDKs of old read "sandboxes", the generated clients read "items".
func (f *Face) listBoxes(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	infos, err := f.driver.List(r.Context())
	if err != nil {
		return err
	}
	if infos, err = filterBoxes(infos, q); err != nil {
		return err
	}
	order, err := orderOf(q)
	if err != nil {
		return err
	}
	sort.SliceStable(infos, func(i, j int) bool { return order(infos[i], infos[j]) < 0 }) // slices.SortFunc is compiled for each type
	answer := map[string]any{"next_cursor": nil}
	if text := q.Get("cursor"); text != "" {
		last, err := parseCursor(text)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(infos, func(i driver.Info) bool { return order(last, i) < 0 })
		if i < 0 {
			i = len(infos)
		}
		infos = infos[i:]
	}
	offset, _, err := number(q, "offset", 0)
	if err != nil {
		return err
	}
	infos = infos[min(offset, len(infos)):]
	size, paged, err := number(q, "page_size", 1)
	if err == nil && !paged {
		size, paged, err = number(q, "limit", 1)
	}
	if err != nil {
		return err
	}
	if size = min(size, maxPage); paged && size < len(infos) {
		infos = infos[:size]
		answer["next_cursor"] = cursorOf(&infos[size-1])
		answer["offset"] = offset + size
	}
	boxes := make([]*box, len(infos))
	for i := range infos {
		boxes[i] = f.boxJSON(r, &infos[i])
	}
	answer["sandboxes"], answer["items"] = boxes, boxes
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// filterBoxes keeps what the query asks for.
func filterBoxes(infos []driver.Info, q url.Values) ([]driver.Info, error) {
	if by := q.Get("created_by"); by != "" && by != "me" {
		return nil, requestErrorf("created_by is %.40q; only \"me\" is allowed, and all sandboxes are yours", by)
	}
	status, part := q.Get("status"), strings.ToLower(q.Get("name_contains"))
	switch status {
	case "", "provisioning", "ready", "failed", "stopped", "deleting":
	default:
		return nil, requestErrorf("status is %.40q; provisioning, ready, failed, stopped and deleting are allowed", status)
	}
	return slices.DeleteFunc(infos, func(i driver.Info) bool {
		return status != "" && statusOf(i.State) != status || !strings.Contains(strings.ToLower(i.Name), part) ||
			!hasLabels(i.Metadata, q["label"]) || !hasAll(tagValues(i.Notes), q["tag_value_id"])
	}), nil
}

// hasLabels reports whether all labels are there: "key", or "key=value".
func hasLabels(have map[string]string, want []string) bool {
	for _, label := range want {
		key, value, equal := strings.Cut(label, "=")
		got, ok := have[key]
		if !ok || equal && got != value {
			return false
		}
	}
	return true
}

// orderOf returns the order that the query asks for. What is equal by it comes as it was
// made.
func orderOf(q url.Values) (func(a, b driver.Info) int, error) {
	order := cmp.Or(q.Get("sort_order"), q.Get("sort_direction"), "asc")
	if order != "asc" && order != "desc" {
		return nil, requestErrorf("sort_order is %.40q; asc and desc are allowed", order)
	}
	made := func(a, b driver.Info) int { return a.Created.Compare(b.Created) }
	var compare func(a, b driver.Info) int
	switch by := q.Get("sort_by"); by {
	case "", "created_at":
		compare = made
	case "name":
		compare = func(a, b driver.Info) int { return cmp.Compare(a.Name, b.Name) }
	case "status":
		compare = func(a, b driver.Info) int { return cmp.Compare(statusOf(a.State), statusOf(b.State)) }
	case "stopped_at":
		compare = func(a, b driver.Info) int { return a.StoppedAt.Compare(b.StoppedAt) }
	case "idle_ttl_seconds":
		compare = func(a, b driver.Info) int { return cmp.Compare(a.IdleTTL, b.IdleTTL) }
	case "delete_after_stop_seconds":
		compare = func(a, b driver.Info) int { return cmp.Compare(a.DeleteAfterStop, b.DeleteAfterStop) }
	default:
		return nil,
			requestErrorf("sort_by is %.40q; name, status, created_at, stopped_at, idle_ttl_seconds and delete_after_stop_seconds are allowed", by)
	}
	return func(a, b driver.Info) int {
		first := compare(a, b)
		if order == "desc" {
			first = -first
		}
		return cmp.Or(first, made(a, b), cmp.Compare(a.ID, b.ID))
	}, nil
}

// cursor is the last box of a page, as far as orders know it: the next page begins
// behind its place, whatever has become of the box since.
type cursor struct {
	ID              driver.ID
	Name            string
	State           driver.State
	Created         time.Time
	StoppedAt       time.Time
	IdleTTL         time.Duration
	DeleteAfterStop time.Duration
}

func cursorOf(i *driver.Info) string {
	text, err := json.Marshal(cursor{i.ID, i.Name, i.State, i.Created, i.StoppedAt, i.IdleTTL, i.DeleteAfterStop})
	if err != nil { // impossible: texts, numbers and times of this millennium
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(text string) (driver.Info, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(b, &c) != nil || !driver.LikeID(string(c.ID)) {
		return driver.Info{}, requestErrorf("cursor is none of this server; leave it out to start again")
	}
	return driver.Info{ID: c.ID, Name: c.Name, State: c.State, Created: c.Created, StoppedAt: c.StoppedAt, IdleTTL: c.IdleTTL,
		DeleteAfterStop: c.DeleteAfterStop}, nil
}
