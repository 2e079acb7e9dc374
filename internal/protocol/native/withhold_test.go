package native_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// A reader sees which variables a process has, and none of their values, in no answer and
// no stream, nor the URL that is told of its end; and nothing is withheld from others for
// that.
func TestAReaderSeesNoValuesOfEnvironments(t *testing.T) {
	face := proctest.Value(native.New(native.Config{Manager: testkeeper.New(t)}))(t)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, face, nil))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Reader") != "" {
			r = r.WithContext(module.WithReader(r.Context()))
		}
		mux.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	c := tendv1connect.NewProcessServiceClient(srv.Client(), srv.URL)
	viewer := tendv1connect.NewOverviewServiceClient(srv.Client(), srv.URL)
	id := proctest.Value(c.Start(t.Context(), connect.NewRequest(&tendv1.StartRequest{Spec: &tendv1.Spec{
		Argv: []string{"true"}, Dir: "/", Env: map[string]string{"KEY": "hunter2"}, RawEnv: []*tendv1.Spec_RawVariable{{Name: []byte("RAW\xff"), Value: []byte("hunter2")}},
		Labels: map[string]string{"tend.on-exit-url": "https://hooks.example/hunter2", "team": "red"},
	}})))(t).Msg.GetInfo().GetId()
	all := func(reader bool) string {
		var b strings.Builder
		get := connect.NewRequest(&tendv1.GetRequest{Process: &tendv1.Selector{By: &tendv1.Selector_Id{Id: id}}})
		list, events, view := connect.NewRequest(&tendv1.ListRequest{}), connect.NewRequest(&tendv1.EventsRequest{}), connect.NewRequest(&tendv1.WatchOverviewRequest{})
		if reader {
			for _, h := range []http.Header{get.Header(), list.Header(), events.Header(), view.Header()} {
				h.Set("Reader", "yes")
			}
		}
		fmt.Fprint(&b, proctest.Value(c.Get(t.Context(), get))(t).Msg, proctest.Value(c.List(t.Context(), list))(t).Msg)
		stream := proctest.Value(c.Events(t.Context(), events))(t)
		defer stream.Close()
		for stream.Receive() {
			fmt.Fprint(&b, stream.Msg())
			if stream.Msg().GetEvent().GetHello() == nil {
				break
			}
		}
		seen := proctest.Value(viewer.Watch(t.Context(), view))(t)
		defer seen.Close()
		for seen.Receive() && !strings.Contains(fmt.Sprint(seen.Msg()), id) {
		}
		fmt.Fprint(&b, seen.Msg())
		return b.String()
	}
	if seen := all(true); strings.Contains(seen, "hunter2") || !strings.Contains(seen, "KEY") || !strings.Contains(seen, "RAW") || !strings.Contains(seen, "tend.on-exit-url") || !strings.Contains(seen, "red") {
		t.Errorf("a reader sees %s", seen)
	}
	if seen := all(false); strings.Count(seen, "hunter2") < 7 {
		t.Errorf("the owner sees %s", seen)
	}
}
