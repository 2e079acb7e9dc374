package native

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// FuzzCalls sends bodies to the methods that start nothing: each is answered,
// and none makes a handler panic.
func FuzzCalls(f *testing.F) {
	paths := []string{
		tendv1connect.ProcessServiceGetProcedure, tendv1connect.ProcessServiceListProcedure, tendv1connect.ProcessServiceWriteProcedure,
		tendv1connect.ProcessServiceReadProcedure, tendv1connect.ProcessServiceWaitProcedure, tendv1connect.ProcessServiceSignalProcedure,
		tendv1connect.ProcessServiceResizeProcedure, tendv1connect.ProcessServiceTrimProcedure, tendv1connect.ViewServiceViewProcedure,
		tendv1connect.ViewServiceGrepProcedure, tendv1connect.AdminServiceStatusProcedure, tendv1connect.ProcessServiceRemoveProcedure,
		tendv1connect.SandboxServiceGetProcedure, tendv1connect.SandboxServiceListProcedure, tendv1connect.SandboxServiceUpdateProcedure,
	}
	kinds := []string{"application/json", "application/proto", "application/connect+json", "application/connect+proto", "application/grpc-web"}
	for i, m := range []proto.Message{
		&tendv1.GetRequest{Process: &tendv1.Selector{By: &tendv1.Selector_Any{Any: "x"}}}, &tendv1.ListRequest{After: "1.a", Limit: 1},
		&tendv1.WriteRequest{Data: []byte("x")}, &tendv1.ReadRequest{MaxChunk: 1}, &tendv1.WaitRequest{Until: &tendv1.WaitRequest_Port{Port: 1}},
		&tendv1.GrepRequest{Pattern: "a|b"}, &tendv1.ViewRequest{},
		&tendv1.UpdateSandboxRequest{Sandbox: "x", Metadata: map[string]string{"a": "b"}},
	} {
		binary, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, 0, text)
		f.Add(i, 1, binary)
		f.Add(i, 3, append([]byte{0, 0, 0, 0, byte(len(binary))}, binary...))
	}
	m := testkeeper.New(f)
	sandboxes, err := host.Open(host.Config{Dir: filepath.Join(f.TempDir(), "boxes"), Manager: m})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := sandboxes.Create(f.Context(), driver.Spec{Name: "x"}); err != nil {
		f.Fatal(err)
	}
	face, err := New(Config{Manager: m, Driver: sandboxes})
	if err != nil {
		f.Fatal(err)
	}
	mux := http.NewServeMux()
	if err := module.Mount(mux, face, nil); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, kind int, body []byte) {
		r := httptest.NewRequest("POST", paths[uint(path)%uint(len(paths))], bytes.NewReader(body))
		r.Header.Set("Content-Type", kinds[uint(kind)%uint(len(kinds))])
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || bytes.Contains(w.Body.Bytes(), []byte("fault of the server")) {
			t.Errorf("%s: %d %s", r.URL.Path, w.Code, w.Body)
		}
	})
}

// FuzzPlace: what clients give back as a place is one that was told, or refused.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"", "1.a", "-1.b-c", "9223372036854775807.x", "9223372036854775808.x", "1.", ".a", "1.../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlace(s)
		if err != nil || s == "" {
			return
		}
		again, err := parsePlace(p.String())
		if err != nil || again.id != p.id || !again.started.Equal(p.started) {
			t.Errorf("%q is %+v, and then %+v, %v", s, p, again, err)
		}
	})
}
