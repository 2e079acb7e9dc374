package native_test

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// flushes counts what is sent before the end of an answer.
type flushes struct {
	*httptest.ResponseRecorder
	n int
}

func (f *flushes) Flush() { f.n++ }

// What is at hand at once is sent at once, and not by a write for each fact. That what is
// not is sent before a stream waits is what all other tests of streams stand on.
func TestFactsThatAreAtHandAreSentTogether(t *testing.T) {
	m := testkeeper.New(t)
	face := proctest.Value(native.New(native.Config{Manager: m}))(t)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, face, nil))
	p := proctest.Value(m.Start(t.Context(), process.Spec{ID: "over", Shell: "echo out; echo err >&2", Dir: "/", Stdin: process.StdinNull}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)

	body := `{"process": {"id": "over"}}`
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tendv1connect.ProcessServiceReadProcedure, strings.NewReader(string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))))+body))
	req.Header.Set("Content-Type", "application/connect+json")
	got := &flushes{ResponseRecorder: httptest.NewRecorder()}
	mux.ServeHTTP(got, req)
	for _, want := range []string{`"hello"`, `"started"`, `"output"`, `"exited"`, `"eof"`} {
		if !strings.Contains(got.Body.String(), want) {
			t.Errorf("no %s: %q", want, got.Body)
		}
	}
	if got.n > 0 {
		t.Errorf("it was sent in %d parts before the last", got.n)
	}
}
