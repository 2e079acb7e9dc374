package native_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// timed is text, and when its first byte arrived.
type timed struct {
	text string
	at   time.Time
}

func TestAViewTellsWhenTextArrived(t *testing.T) {
	c, url := serve(t, native.Config{})
	p := start(t, c, "exec cat")
	events := func() (all []timed) {
		s := proctest.Value(c.Read(t.Context(), connect.NewRequest(&tendv1.ReadRequest{Process: p, NoFollow: true})))(t)
		defer s.Close()
		for s.Receive() {
			if e := s.Msg().GetEvent(); e.GetOutput() != nil {
				all = append(all, timed{string(e.GetOutput().GetData()), e.GetTime().AsTime()})
			}
		}
		proctest.Must(t, s.Err())
		return all
	}
	proctest.Eventually(t, "lines that arrived at different times", func() bool {
		proctest.Value(c.Write(t.Context(), connect.NewRequest(&tendv1.WriteRequest{Process: p, Data: []byte("a line\n")})))(t)
		return len(events()) >= 2
	})
	proctest.Value(c.Write(t.Context(), connect.NewRequest(&tendv1.WriteRequest{Process: p, Eof: true})))(t)
	ended := proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: p, Until: &tendv1.WaitRequest_Eof{Eof: true}})))(t)
	defer ended.Close()
	for ended.Receive() {
	}
	proctest.Must(t, ended.Err())

	view := func(times bool) (all []timed) {
		s := proctest.Value(tendv1connect.NewViewServiceClient(http.DefaultClient, url).View(t.Context(), connect.NewRequest(&tendv1.ViewRequest{Process: p, Times: times})))(t)
		defer s.Close()
		for s.Receive() {
			if m := s.Msg(); m.GetTime() == nil {
				all = append(all, timed{text: string(m.GetText())})
			} else {
				all = append(all, timed{string(m.GetText()), m.GetTime().AsTime()})
			}
		}
		proctest.Must(t, s.Err())
		return all
	}
	want := events()
	if got := view(true); !slices.Equal(got, want) {
		t.Errorf("with times: %v, want the events %v", got, want)
	}
	whole := ""
	for _, e := range want {
		whole += e.text
	}
	if got := view(false); !slices.Equal(got, []timed{{text: whole}}) {
		t.Errorf("without times: %v, want all as one text", got)
	}
}

// A client that asks behind the end learns where the end is, as from Read.
func TestAViewAndASearchPastTheEndAreOutOfRange(t *testing.T) {
	c, url := serve(t, native.Config{})
	p := start(t, c, "echo out")
	ended := proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: p, Until: &tendv1.WaitRequest_Eof{Eof: true}})))(t)
	defer ended.Close()
	for ended.Receive() {
	}
	proctest.Must(t, ended.Err())
	from := []*tendv1.StreamOffset{{Stream: tendv1.Stream_STREAM_STDOUT, Offset: 5}}
	views := tendv1connect.NewViewServiceClient(http.DefaultClient, url)
	v := proctest.Value(views.View(t.Context(), connect.NewRequest(&tendv1.ViewRequest{Process: p, From: from})))(t)
	defer v.Close()
	g := proctest.Value(views.Grep(t.Context(), connect.NewRequest(&tendv1.GrepRequest{Process: p, From: from, Pattern: "."})))(t)
	defer g.Close()
	for name, s := range map[string]interface {
		Receive() bool
		Err() error
	}{"view": v, "search": g} {
		if s.Receive() {
			t.Errorf("%s: it answers something", name)
		}
		err := s.Err()
		if connect.CodeOf(err) != connect.CodeOutOfRange || !errors.Is(tendpb.FromError(err), process.ErrOffset) || !strings.Contains(err.Error(), "stdout ends at 4, 5 was asked for") {
			t.Errorf("%s: %v; want that stdout ends at 4", name, err)
		}
	}
}
