package native

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// maxPage bounds an answer of List in bytes. Specs may have 8 MiB each: all of
// them in one answer would have no bound.
const maxPage = 4 << 20

// place is where an answer of List ended: behind a process, known by its id, or
// by the time of its start once it was removed.
type place struct {
	started time.Time
	id      process.ID
}

// String is "<start in unix ns>.<id>", which clients must not look into.
func (p place) String() string {
	return strconv.FormatInt(p.started.UnixNano(), 10) + "." + string(p.id)
}

// parsePlace reads what String wrote; "" is the beginning.
func parsePlace(s string) (place, error) {
	if s == "" {
		return place{}, nil
	}
	ns, id, _ := strings.Cut(s, ".")
	started, err := strconv.ParseInt(ns, 10, 64)
	if err != nil || process.ID(id).Validate() != nil {
		return place{}, &process.InvalidError{Field: "after", Reason: "is no next of an answer of List"}
	}
	return place{time.Unix(0, started), process.ID(id)}, nil
}

// rest is what follows the place.
func (p place) rest(infos []process.Info) []process.Info {
	if p.id == "" {
		return infos
	}
	for i := range infos {
		if infos[i].ID == p.id {
			return infos[i+1:]
		}
	}
	for i := range infos {
		if infos[i].Started.After(p.started) {
			return infos[i:]
		}
	}
	return nil
}

// page is the beginning of infos: at most limit of them, if that is not 0, and
// not much more than maxPage bytes.
func page(infos []process.Info, limit int) *tendv1.ListResponse {
	if limit == 0 {
		limit = len(infos)
	}
	m := &tendv1.ListResponse{}
	for i, size := 0, 0; i < len(infos); i++ {
		info := tendpb.Info(&infos[i])
		size += proto.Size(info)
		if i > 0 && size > maxPage || i == limit {
			last := &infos[i-1]
			m.Next = place{last.Started, last.ID}.String()
			return m
		}
		m.Processes = append(m.Processes, info)
	}
	return m
}
