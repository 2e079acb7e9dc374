package native_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(listenRole) != "" {
		listens()
	}
	goleak.VerifyTestMain(m)
}

// serve returns a client of the face's own protocol, and its URL.
func serve(t *testing.T, cfg native.Config) (tendv1connect.ProcessServiceClient, string) {
	t.Helper()
	c, url, _ := serveFace(t, cfg)
	return c, url
}

func serveFace(t *testing.T, cfg native.Config) (tendv1connect.ProcessServiceClient, string, *native.Face) {
	t.Helper()
	if cfg.Manager == nil {
		cfg.Manager = testkeeper.New(t)
	}
	face := proctest.Value(native.New(cfg))(t)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, face, nil))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return tendv1connect.NewProcessServiceClient(&http.Client{Transport: tr}, srv.URL), srv.URL, face
}

func start(t *testing.T, c tendv1connect.ProcessServiceClient, shell string) *tendv1.Selector {
	t.Helper()
	resp := proctest.Value(c.Start(t.Context(), connect.NewRequest(&tendv1.StartRequest{Spec: &tendv1.Spec{Shell: shell, Dir: "/", Stdin: tendv1.StdinMode_STDIN_MODE_PIPE}})))(t)
	return &tendv1.Selector{By: &tendv1.Selector_Id{Id: resp.Msg.GetInfo().GetId()}}
}

func TestWrongRequestsNameTheField(t *testing.T) {
	_, url := serve(t, native.Config{})
	for name, c := range map[string]struct{ method, body, code, text string }{
		"no command":            {"Start", `{"spec":{}}`, "invalid_argument", "argv is empty"},
		"both commands":         {"Start", `{"spec":{"argv":["a"],"shell":"b"}}`, "invalid_argument", "argv is given together with shell"},
		"a NUL byte":            {"Start", `{"spec":{"argv":["a\u0000"]}}`, "invalid_argument", "argv[0] has a NUL byte"},
		"a huge terminal":       {"Start", `{"spec":{"argv":["a"],"pty":{"cols":70000}}}`, "invalid_argument", "pty is 70000x0"},
		"a bad id":              {"Start", `{"spec":{"id":"../x","argv":["a"]}}`, "invalid_argument", "id has the byte"},
		"a name of two lines":   {"Start", `{"spec":{"argv":["a"],"name":"a\nb"}}`, "invalid_argument", "name has the control character U+000A"},
		"a tag that clears":     {"Start", `{"spec":{"argv":["a"],"tag":"\u001b[2J"}}`, "invalid_argument", "tag has the control character U+001B"},
		"an endless timeout":    {"Start", `{"spec":{"argv":["a"],"timeout":"400000000s"}}`, "invalid_argument", "timeout is"},
		"a program that is not": {"Start", `{"spec":{"argv":["/no/such/program"],"dir":"/"}}`, "not_found", "is not found"},
		"no selector":           {"Get", `{}`, "invalid_argument", "selector names no process"},
		"an unknown process":    {"Get", `{"process":{"id":"nobody"}}`, "not_found", "no such process"},
		"signal -1":             {"Signal", `{"process":{"id":"a"},"signal":-1}`, "invalid_argument", "signal is -1"},
		"signal 65":             {"Signal", `{"process":{"id":"a"},"signal":65}`, "invalid_argument", "signal is 65"},
		"an unknown scope":      {"Signal", `{"process":{"id":"a"},"signal":9,"scope":9}`, "invalid_argument", "scope has the unknown value"},
		"trimming stdin":        {"Trim", `{"process":{"id":"a"},"before":9}`, "invalid_argument", "stream is 0"},
		"half a message":        {"Start", `{"spec":{"ar`, "invalid_argument", "unmarshal"},
		"a field that is not":   {"Hello", `{"color":1}`, "", ""},
		"too many bytes":        {"Write", `{"data":"` + strings.Repeat("A", native.MaxRequest+8) + `"}`, "resource_exhausted", "16777216"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, url+"/tend.v1.ProcessService/"+c.method, c.body, c.code, c.text) })
	}
}

// refused wants an error with this code, and text in its message.
func refused(t *testing.T, url, body, code, text string) {
	t.Helper()
	resp := proctest.Value(http.Post(url, "application/json", strings.NewReader(body)))(t)
	defer resp.Body.Close()
	var e struct{ Code, Message string }
	proctest.Must(t, json.NewDecoder(resp.Body).Decode(&e))
	if e.Code != code || !strings.Contains(e.Message, text) {
		t.Fatalf("%s %q, want %s %q", e.Code, e.Message, code, text)
	}
}

func TestAnIdleStreamBeatsAndGoesAwayWithTheServer(t *testing.T) {
	c, _, face := serveFace(t, native.Config{Heartbeat: time.Millisecond, Instance: "i1"})
	stream := proctest.Value(c.Read(t.Context(), connect.NewRequest(&tendv1.ReadRequest{Process: start(t, c, "exec sleep 1000")})))(t)
	defer stream.Close()
	beats := 0
	for first := true; stream.Receive(); first = false {
		ev := stream.Msg().GetEvent()
		if first && ev.GetHello().GetInstance() != "i1" {
			t.Fatalf("the first message is %v", ev)
		}
		if ev.GetHeartbeat() != nil {
			if beats++; beats == 3 {
				face.Close()
			}
		}
		if ev.GetGoingAway() != nil {
			if stream.Receive() {
				t.Fatalf("%v came after going_away", stream.Msg())
			}
			if beats < 3 || stream.Err() != nil {
				t.Fatalf("%d beats, %v", beats, stream.Err())
			}
			return
		}
	}
	t.Fatalf("the stream ended: %v", stream.Err())
}

func TestNowIsSettledAndTold(t *testing.T) {
	c, _ := serve(t, native.Config{})
	sel := start(t, c, "echo one; read x; echo two")
	stream := proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: sel, Until: &tendv1.WaitRequest_Match_{Match: &tendv1.WaitRequest_Match{Pattern: "one"}}})))(t)
	for stream.Receive() {
	}
	proctest.Must(t, stream.Err())
	read := proctest.Value(c.Read(t.Context(), connect.NewRequest(&tendv1.ReadRequest{Process: sel, From: []*tendv1.StreamOffset{{Stream: 1, Offset: -1}, {Stream: 2, Offset: -1}}})))(t)
	defer read.Close()
	var told map[tendv1.Stream]int64
	var text []byte
	for read.Receive() {
		ev := read.Msg().GetEvent()
		if h := ev.GetHello(); h != nil {
			told = map[tendv1.Stream]int64{}
			for _, at := range h.GetFrom() {
				told[at.GetStream()] = at.GetOffset()
			}
			proctest.Value(c.Write(t.Context(), connect.NewRequest(&tendv1.WriteRequest{Process: sel, Data: []byte("\n")})))(t)
		}
		text = append(text, ev.GetOutput().GetData()...)
	}
	if at, ok := told[2]; told[1] != 4 || !ok || at != 0 || string(text) != "two\n" || read.Err() != nil {
		t.Fatalf("told %v, text %q, %v", told, text, read.Err())
	}
}

func TestAWriteStreamIsAnsweredInOrder(t *testing.T) {
	c, _ := serve(t, native.Config{})
	sel := start(t, c, "exec cat")
	stream := c.WriteStream(t.Context())
	var want []byte
	for i := range int64(50) {
		at, data := i*1000, bytes.Repeat([]byte{byte('a' + i%26)}, 1000)
		want = append(want, data...)
		m := &tendv1.WriteRequest{Data: data, Offset: &at, Eof: i == 49}
		if i == 0 {
			m.Process = sel
		}
		proctest.Must(t, stream.Send(m))
		answer, err := stream.Receive()
		if err != nil || answer.GetOffset() != at+1000 {
			t.Fatalf("answer %v, %v", answer, err)
		}
	}
	proctest.Must(t, stream.CloseRequest())
	if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	stream.CloseResponse()
	read := proctest.Value(c.Read(t.Context(), connect.NewRequest(&tendv1.ReadRequest{Process: sel})))(t)
	defer read.Close()
	var got []byte
	for read.Receive() {
		got = append(got, read.Msg().GetEvent().GetOutput().GetData()...)
	}
	if !bytes.Equal(got, want) || read.Err() != nil {
		t.Fatalf("%d bytes of %d, %v", len(got), len(want), read.Err())
	}
}

func TestAdministrationThatIsNotThereSaysSo(t *testing.T) {
	_, url := serve(t, native.Config{})
	c := tendv1connect.NewAdminServiceClient(http.DefaultClient, url)
	_, err := c.Status(t.Context(), connect.NewRequest(&tendv1.StatusRequest{}))
	if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), process.ErrUnsupported.Error()) {
		t.Fatal(err)
	}
}

func TestAFaultOfOneRequestEndsThatRequest(t *testing.T) {
	c, _ := serve(t, native.Config{Manager: faulty{testkeeper.New(t)}})
	_, err := c.List(t.Context(), connect.NewRequest(&tendv1.ListRequest{}))
	if connect.CodeOf(err) != connect.CodeInternal {
		t.Fatal(err)
	}
	proctest.Value(c.Hello(t.Context(), connect.NewRequest(&tendv1.HelloRequest{})))(t)
}

type faulty struct{ process.Manager }

func (faulty) List(context.Context, process.Filter) ([]process.Info, error) { panic("fault") }
