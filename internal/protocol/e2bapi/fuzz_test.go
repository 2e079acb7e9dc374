package e2bapi

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Whatever the query of a list, what passes is within the limits, and the token of a
// page is read as it was written.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"metadata=odd%252520key%3Da%25253Db&state=running,paused&limit=100", "metadata=a%252520b%3Dc%25253Dd", "state=running&state=paused&order=asc", "startedAfter=2026-11-22T12:00:00.000Z",
		"nextToken=MSxhYWFhYWFhYS0wMDAwLTQwMDAtODAwMC0wMDAwMDAwMDAwMDE", "limit=9999999999999999999", "cursor=1&direction=backward&level=warn&search=x", "metadata=%00%3D%ff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, _ := url.ParseQuery(raw)
		if l, err := queryOf(q); err == nil {
			if l.page.limit < 1 || l.page.limit > maxPage || len(l.metadata) > driver.MaxMetadata || l.page.follow && !driver.LikeID(l.page.lastID) {
				t.Errorf("%q passes as %+v", raw, l)
			}
			if l.page.follow {
				again, err := pageOf(url.Values{"nextToken": {tokenOf(time.Unix(0, l.page.lastTime), l.page.lastID)}})
				if err != nil || again.lastID != l.page.lastID || again.lastTime != l.page.lastTime {
					t.Errorf("%+v is read as %+v, %v", l.page, again, err)
				}
			}
		} else if problemOf(err).status != 400 {
			t.Errorf("%q: %v", raw, err)
		}
		if l, err := logQuery(q, "cursor"); err == nil && (l.Limit < 1 || l.Limit > maxLogs || l.From.Unix() < 0 && !l.From.IsZero()) {
			t.Errorf("%q passes as %+v", raw, l)
		}
	})
}

// Whatever the body of a creation, it is refused with a reason, or asks the driver
// for an isolated sandbox that is used with its own token, of nothing else than the
// fields of E2B: no share of a directory, no user, no name.
func FuzzCreate(f *testing.F) {
	f.Add([]byte(`{"templateID":"base","timeout":300,"metadata":{"a":"b"},"envVars":{"A":"b"},"network":{"allowOut":["a"],"allowPublicTraffic":false},"autoResume":{"enabled":true}}`))
	f.Add([]byte(`{"shares":[{"source":"/"}],"Shares":[{"Source":"/"}],"isolation":1,"notes":{},"run":{"user":"root"},"name":"x","network":{"Mode":2,"mode":"host"}}`))
	f.Add([]byte(`{"timeout":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var req createRequest
		if json.Unmarshal(body, &req) != nil {
			return
		}
		spec, err := req.spec(defaultTimeout)
		if err != nil {
			if p := problemOf(err); p.text == "" || p.status != 400 && p.status != 501 {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if spec.Isolation != driver.IsolationFull || spec.Notes[protocol.NoteSecure] == "" || len(spec.Shares) > 0 || spec.Name != "" || spec.Run.User != "" || spec.Run.Dir != "" ||
			spec.Network.Mode != driver.NetworkDefault || spec.Deadline.IsZero() {
			t.Errorf("%q asks for %+v", body, spec)
		}
	})
}
