package native_test

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// keeps has kept something of each file, and notes what it is asked for.
type keeps struct{ asked chan []string }

func (k keeps) FileBefore(_ context.Context, sandbox []string, path string) (*tendv1.FileBeforeResponse, error) {
	k.asked <- append(slices.Clone(sandbox), path)
	return &tendv1.FileBeforeResponse{ChangedBy: "one", Existed: true, Content: []byte("before")}, nil
}

// What a file was before is told to those who may read it now, and of no other file.
func TestWhatAFileWasIsForThoseWhoReadIt(t *testing.T) {
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	k := keeps{make(chan []string, 10)}
	_, url := serve(t, native.Config{Manager: m, Driver: d, Kept: k})
	sandbox := create(t, tendv1connect.NewSandboxServiceClient(http.DefaultClient, url), &tendv1.SandboxSpec{Name: "one"})
	f := tendv1connect.NewFileServiceClient(http.DefaultClient, url)
	w := f.WriteFile(t.Context())
	w.RequestHeader().Set("Tend-Sandbox", "one")
	proctest.Must(t, w.Send(&tendv1.WriteFileRequest{Path: "x", Data: []byte("now")}))
	proctest.Value(w.CloseAndReceive())(t)
	got := proctest.Value(f.FileBefore(t.Context(), inside(&tendv1.FileBeforeRequest{Path: "x"}, "one")))(t).Msg
	if string(got.GetContent()) != "before" || !got.GetExisted() {
		t.Errorf("it is %v", got)
	}
	if asked := <-k.asked; !slices.Equal(asked, []string{sandbox.GetId(), "one", sandbox.GetDir() + "/x"}) {
		t.Errorf("it is asked for %q", asked)
	}
	for name, one := range map[string]struct {
		path, user string
		keys       []string
		code       connect.Code
	}{
		"no such file":    {"y", "", []string{"one"}, connect.CodeNotFound},
		"a directory":     {".", "", []string{"one"}, connect.CodeFailedPrecondition},
		"no path":         {"", "", []string{"one"}, connect.CodeInvalidArgument},
		"a file of root":  {"/etc/shadow", "nobody", []string{"one"}, connect.CodePermissionDenied},
		"no such sandbox": {"x", "", []string{"two"}, connect.CodeNotFound},
		"two sandboxes":   {"x", "", []string{"one", "two"}, connect.CodeInvalidArgument},
		"no sandbox":      {"/etc/hostname", "", nil, connect.CodeInvalidArgument},
	} {
		if _, err := f.FileBefore(t.Context(), inside(&tendv1.FileBeforeRequest{Path: one.path, User: one.user}, one.keys...)); connect.CodeOf(err) != one.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(k.asked) > 0 {
		t.Errorf("it is asked for %q", <-k.asked)
	}
}
