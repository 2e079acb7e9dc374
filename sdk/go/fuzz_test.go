package tend

import (
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// FuzzTarget: no URL makes the parser panic, and what it takes can be called.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1:1", "https://h/x/", "unix:///run/tend.sock", "unix:", "unix:x", "http://", "http://[::1%25lo]:1/", "ftp://x", "://", "http://a b", "http://u:p@h", "http://h/a%3Fb%25/%2f", "http://[fe80::1%25eth0]:1/x", "HTTPS://h?q#f", "http://0:", "http://0/ /%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		to, err := parseTarget(raw)
		if err != nil {
			return
		}
		if !strings.HasPrefix(to.base, "http") || strings.HasSuffix(to.base, "/") && to.base != "http://" && !strings.HasSuffix(raw, "//") {
			t.Errorf("%q is %+v", raw, to)
		}
		r, err := http.NewRequest("POST", to.base+"/tend.v1.ProcessService/List", nil)
		if err != nil {
			t.Fatalf("%q is %+v, which cannot be called: %v", raw, to, err)
		}
		asked, err := url.Parse(raw)
		if to.socket != "" || err != nil {
			return
		}
		if r.URL.Host != strings.TrimSuffix(asked.Host, ":") || r.URL.RawQuery != "" || r.URL.EscapedPath() != strings.TrimSuffix(asked.EscapedPath(), "/")+"/tend.v1.ProcessService/List" {
			t.Errorf("%q is called at %s", raw, r.URL)
		}
	})
}

// FuzzServer: nothing that a server says makes the client panic, hand on an id
// that is none, or deliver bytes twice or with holes.
func FuzzServer(f *testing.F) {
	add := func(ms ...proto.Message) {
		for _, m := range ms {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, b)
		}
	}
	add(&tendv1.Info{Id: "a", Spec: &tendv1.Spec{Name: "\x1b[2J"}, Streams: []*tendv1.StreamInfo{{Stream: 1, End: 5}}},
		&tendv1.Event{ProcessId: "a", Fact: &tendv1.Event_Output_{Output: &tendv1.Event_Output{Stream: 1, Data: []byte("abc")}}},
		&tendv1.Event{Fact: &tendv1.Event_Gap{Gap: &tendv1.Gap{Stream: 2, To: 9}}},
		&tendv1.Event{Fact: &tendv1.Event_Output_{Output: &tendv1.Event_Output{Stream: 257, Offset: math.MaxInt64, Data: []byte("abc")}}})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var info tendv1.Info
		if proto.Unmarshal(one, &info) == nil {
			if i, err := toInfo(&info, ""); err == nil {
				if i.ID.Validate() != nil || tendpb.CleanName(i.Spec.Name) != i.Spec.Name {
					t.Errorf("%+v was handed on", i)
				}
			}
		}
		r := &reader{proc: &remote{id: "a"}}
		var at [4]int64
		for _, b := range [][]byte{one, two, one} {
			var m tendv1.Event
			if proto.Unmarshal(b, &m) != nil {
				return
			}
			ev, ok := tendpb.ToEvent(&m)
			if !ok || r.check(&ev) != nil || !r.fresh(&ev) {
				continue
			}
			switch ev.Kind {
			case process.EventOutput:
				if ev.Offset != at[ev.Stream] {
					t.Errorf("output at %d, want %d", ev.Offset, at[ev.Stream])
				}
				at[ev.Stream] += int64(len(ev.Data))
			case process.EventGap:
				at[ev.Stream] = ev.Gap.To
			}
		}
	})
}
