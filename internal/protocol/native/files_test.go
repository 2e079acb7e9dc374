package native_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestFilesAreThoseOfTheSandboxThatTheHeaderNames(t *testing.T) {
	_, c, url := serveSandboxes(t)
	one, two := create(t, c, &tendv1.SandboxSpec{Name: "one"}), create(t, c, &tendv1.SandboxSpec{Name: "two"})
	f := tendv1connect.NewFileServiceClient(http.DefaultClient, url)
	w := f.WriteFile(t.Context())
	w.RequestHeader().Set("Tend-Sandbox", "one")
	proctest.Must(t, w.Send(&tendv1.WriteFileRequest{Path: "x", Data: []byte("of ")}))
	proctest.Must(t, w.Send(&tendv1.WriteFileRequest{Data: []byte("one")}))
	if e := proctest.Value(w.CloseAndReceive())(t).Msg.GetEntry(); e.GetPath() != one.GetDir()+"/x" || e.GetSize() != 6 {
		t.Errorf("written: %v", e)
	}
	if _, err := f.StatFile(t.Context(), inside(&tendv1.StatFileRequest{Path: "x"}, "two")); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("in %s: %v", two.GetDir(), err)
	}
	// What names no sandbox touches no file of the machine.
	for name, r := range map[string]struct {
		keys       []string
		path, user string
		code       connect.Code
		text       string
	}{
		"no header":       {nil, "/etc/hostname", "", connect.CodeInvalidArgument, "Tend-Sandbox comes 0 times"},
		"an empty header": {[]string{""}, "/etc/hostname", "", connect.CodeInvalidArgument, "or is empty"},
		"two headers":     {[]string{"one", "two"}, "x", "", connect.CodeInvalidArgument, "comes 2 times"},
		"no such sandbox": {[]string{"three"}, "x", "", connect.CodeNotFound, `sandbox "three"`},
		"no path":         {[]string{"one"}, "", "", connect.CodeInvalidArgument, "path has 0 bytes"},
		"a long path":     {[]string{"one"}, strings.Repeat("x", 5000), "", connect.CodeInvalidArgument, "path has 5000 bytes"},
		"a NUL byte":      {[]string{"one"}, "a\x00b", "", connect.CodeInvalidArgument, "NUL"},
		"a long user":     {[]string{"one"}, "x", strings.Repeat("u", 200), connect.CodeInvalidArgument, "user has 200 bytes"},
		"an unknown user": {[]string{"one"}, "x", "nobody-here", connect.CodeFailedPrecondition, "nobody-here"},
	} {
		_, err := f.StatFile(t.Context(), inside(&tendv1.StatFileRequest{Path: r.path, User: r.user}, r.keys...))
		if connect.CodeOf(err) != r.code || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, second := range map[string]*tendv1.WriteFileRequest{"path or user is set": {Path: "y", Data: []byte("z")}} {
		w := f.WriteFile(t.Context())
		w.RequestHeader().Set("Tend-Sandbox", "one")
		proctest.Must(t, w.Send(&tendv1.WriteFileRequest{Path: "z", Data: []byte("a")}))
		_ = w.Send(second)
		if _, err := w.CloseAndReceive(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", second, err)
		}
	}
	read := proctest.Value(f.ReadFile(t.Context(), inside(&tendv1.ReadFileRequest{Path: "x", Offset: 3}, "one")))(t)
	var text string
	for read.Receive() {
		text += string(read.Msg().GetData())
	}
	if text != "one" || read.Err() != nil {
		t.Errorf("from 3: %q, %v", text, read.Err())
	}
}

func TestTemplatesOfADriverWithoutThemAreUnsupported(t *testing.T) {
	_, c, url := serveSandboxes(t)
	create(t, c, &tendv1.SandboxSpec{Name: "one"})
	for name, r := range map[string]struct{ method, body, code, text string }{
		"list":           {"Templates", `{}`, "unimplemented", "templates"},
		"remove":         {"DeleteTemplate", `{"template":"x"}`, "unimplemented", "templates"},
		"remove nothing": {"DeleteTemplate", `{}`, "invalid_argument", "template has 0 bytes"},
		"access to none": {"Access", `{"sandbox":"two"}`, "not_found", `sandbox "two"`},
	} {
		t.Run(name, func(t *testing.T) { refused(t, url+"/tend.v1.SandboxService/"+r.method, r.body, r.code, r.text) })
	}
	b := c.BuildTemplate(t.Context())
	_ = b.Send(&tendv1.BuildTemplateRequest{Spec: &tendv1.TemplateSpec{Name: "x"}})
	if _, err := b.CloseAndReceive(); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("a build: %v", err)
	}
	if a := proctest.Value(c.Access(t.Context(), connect.NewRequest(&tendv1.SandboxAccessRequest{Sandbox: "one"})))(t).Msg; a.GetToken() != "" {
		t.Errorf("without a secret the token is %q", a.GetToken()) // which matches nothing
	}
}
