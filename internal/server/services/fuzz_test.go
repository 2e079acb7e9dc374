package services

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// FuzzServices sends bodies to the methods about services that start nothing: each is
// answered, and what is declared by one is not started.
func FuzzServices(f *testing.F) {
	paths := []string{
		tendv1connect.ServiceServiceApplyProcedure, tendv1connect.ServiceServiceStopProcedure, tendv1connect.ServiceServiceListProcedure,
		tendv1connect.ServiceServiceListEpisodesProcedure, tendv1connect.ServiceServiceGetEpisodeProcedure,
		tendv1connect.ServiceServiceHealProcedure, tendv1connect.ServiceServiceCancelHealProcedure,
	}
	kinds := []string{"application/json", "application/proto"}
	for i, m := range []proto.Message{
		&tendv1.ApplyServicesRequest{Name: "tend.yaml", Dir: "/none", Text: []byte("services: {x: {command: y, env_file: a, watch: src}}"), EnvFiles: map[string][]byte{"a": []byte("A=1\n")}, Env: map[string]string{"B": "2"}},
		&tendv1.StopServicesRequest{Names: []string{"x"}}, &tendv1.ListServicesRequest{}, &tendv1.ListEpisodesRequest{Service: "x"},
		&tendv1.GetEpisodeRequest{Id: "x"}, &tendv1.HealRequest{Service: "x"}, &tendv1.CancelHealRequest{Id: "x"},
	} {
		f.Add(i, 0, proctest.Value(protojson.Marshal(m))(f))
		f.Add(i, 1, proctest.Value(proto.Marshal(m))(f))
	}
	f.Add(0, 0, []byte(`{"dir": "/\u0000", "text": "AAAA", "env": {"": "x"}}`))
	f.Add(0, 0, []byte(`{"dir": "relative", "name": "../..", "text": "c2VydmljZXM6IHt9"}`))
	m := testkeeper.New(f)
	s := Open(Config{Manager: m, Dir: f.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run: %v", err)
		}
	})
	face := proctest.Value(native.New(native.Config{Manager: m, Services: API{s}}))(f)
	mux := http.NewServeMux()
	proctest.Must(f, module.Mount(mux, face, nil))
	f.Fuzz(func(t *testing.T, path, kind int, body []byte) {
		r := httptest.NewRequest("POST", paths[uint(path)%uint(len(paths))], bytes.NewReader(body))
		r.Header.Set("Content-Type", kinds[uint(kind)%uint(len(kinds))])
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || bytes.Contains(w.Body.Bytes(), []byte("fault of the server")) {
			t.Errorf("%s: %d %s", r.URL.Path, w.Code, w.Body)
		}
		if all := proctest.Value(m.List(t.Context(), process.Filter{}))(t); len(all) > 0 {
			t.Errorf("%s has started %s", r.URL.Path, all[0].Spec.Command())
		}
	})
}
