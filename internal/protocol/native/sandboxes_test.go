package native_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/internal/tendpb"
)

// serveSandboxes serves the sandboxes of the host driver.
func serveSandboxes(t *testing.T) (tendv1connect.ProcessServiceClient, tendv1connect.SandboxServiceClient, string) {
	t.Helper()
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	c, url := serve(t, native.Config{Manager: m, Driver: d})
	return c, tendv1connect.NewSandboxServiceClient(http.DefaultClient, url), url
}

func create(t *testing.T, c tendv1connect.SandboxServiceClient, spec *tendv1.SandboxSpec) *tendv1.Sandbox {
	t.Helper()
	return proctest.Value(c.Create(t.Context(), connect.NewRequest(&tendv1.CreateSandboxRequest{Spec: spec})))(t).Msg.GetSandbox()
}

// inside is a request with the header.
func inside[M any](m *M, keys ...string) *connect.Request[M] {
	r := connect.NewRequest(m)
	for _, k := range keys {
		r.Header().Add(tendpb.SandboxHeader, k)
	}
	return r
}

func TestASandboxIsMadeFoundChangedAndEnded(t *testing.T) {
	_, c, _ := serveSandboxes(t)
	spec := &tendv1.SandboxSpec{
		Name: "one", Run: &tendv1.SandboxRun{Env: map[string]string{"A": "1"}}, Metadata: map[string]string{"of": "me"},
		Timeout: durationpb.New(time.Hour), AtTimeout: tendv1.SandboxAction_SANDBOX_ACTION_PAUSE, IdleTtl: durationpb.New(2 * time.Hour),
	}
	sandbox := create(t, c, spec)
	if sandbox.GetName() != "one" || sandbox.GetState() != tendv1.SandboxState_SANDBOX_STATE_READY || sandbox.GetIsolation() != tendv1.SandboxIsolation_SANDBOX_ISOLATION_NONE ||
		sandbox.GetRun().GetEnv()["A"] != "1" || sandbox.GetMetadata()["of"] != "me" || sandbox.GetIdleTtl().AsDuration() != 2*time.Hour ||
		sandbox.GetAtTimeout() != tendv1.SandboxAction_SANDBOX_ACTION_PAUSE || time.Until(sandbox.GetDeadline().AsTime()) > time.Hour || time.Until(sandbox.GetDeadline().AsTime()) < 30*time.Minute {
		t.Fatalf("made: %v", sandbox)
	}
	name := "two"
	changed := proctest.Value(c.Update(t.Context(), connect.NewRequest(&tendv1.UpdateSandboxRequest{
		Sandbox: "one", Name: &name, Timeout: durationpb.New(0), Metadata: map[string]string{"more": "x"},
	})))(t).Msg.GetSandbox()
	if changed.GetId() != sandbox.GetId() || changed.GetName() != "two" || changed.GetDeadline() != nil || changed.GetMetadata()["of"] != "me" || changed.GetMetadata()["more"] != "x" ||
		changed.GetIdleTtl().AsDuration() != 2*time.Hour {
		t.Fatalf("changed: %v", changed)
	}
	for _, do := range []func() error{
		func() error {
			_, err := c.Stop(t.Context(), connect.NewRequest(&tendv1.StopSandboxRequest{Sandbox: "two"}))
			return err
		},
		func() error {
			_, err := c.Start(t.Context(), connect.NewRequest(&tendv1.StartSandboxRequest{Sandbox: sandbox.GetId()}))
			return err
		},
		func() error {
			_, err := c.Destroy(t.Context(), connect.NewRequest(&tendv1.DestroySandboxRequest{Sandbox: "two"}))
			return err
		},
	} {
		proctest.Must(t, do())
	}
	_, err := c.Get(t.Context(), connect.NewRequest(&tendv1.GetSandboxRequest{Sandbox: sandbox.GetId()}))
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), sandbox.GetId()) {
		t.Fatalf("after its end: %v", err)
	}
}

func TestSandboxesAreListedInPagesAndByWhatTheyAre(t *testing.T) {
	_, c, _ := serveSandboxes(t)
	var want []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		create(t, c, &tendv1.SandboxSpec{Name: name, Metadata: map[string]string{"vowel": map[bool]string{true: "yes", false: "no"}[strings.Contains("aeiou", name)]}})
		want = append(want, name)
	}
	proctest.Value(c.Stop(t.Context(), connect.NewRequest(&tendv1.StopSandboxRequest{Sandbox: "a"})))(t)
	var got []string
	req := &tendv1.ListSandboxesRequest{Limit: 2}
	for pages := 1; ; pages++ {
		page := proctest.Value(c.List(t.Context(), connect.NewRequest(req)))(t).Msg
		for _, sandbox := range page.GetSandboxes() {
			got = append(got, sandbox.GetName())
		}
		if req.After = page.GetNext(); req.After == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		if pages == 1 { // what the place names may be gone
			proctest.Value(c.Destroy(t.Context(), connect.NewRequest(&tendv1.DestroySandboxRequest{Sandbox: "b"})))(t)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	some := proctest.Value(c.List(t.Context(), connect.NewRequest(&tendv1.ListSandboxesRequest{
		Metadata: map[string]string{"vowel": "yes"}, States: []tendv1.SandboxState{tendv1.SandboxState_SANDBOX_STATE_READY},
	})))(t).Msg.GetSandboxes()
	if len(some) != 1 || some[0].GetName() != "e" {
		t.Errorf("ready vowels: %v", some)
	}
}

func TestWrongRequestsAboutSandboxesNameTheField(t *testing.T) {
	_, c, url := serveSandboxes(t)
	create(t, c, &tendv1.SandboxSpec{Name: "taken"})
	for name, r := range map[string]struct{ method, body, code, text string }{
		"no sandbox":              {"Get", `{}`, "invalid_argument", "sandbox has 0 bytes"},
		"an unknown one":          {"Get", `{"sandbox":"nobody"}`, "not_found", `sandbox "nobody"`},
		"a name that is taken":    {"Create", `{"spec":{"name":"taken"}}`, "already_exists", "taken"},
		"a bad name":              {"Create", `{"spec":{"name":"../x"}}`, "invalid_argument", "name has"},
		"a negative timeout":      {"Create", `{"spec":{"timeout":"-1s"}}`, "invalid_argument", "timeout is -1s"},
		"an endless idle time":    {"Create", `{"spec":{"idleTtl":"400000000s"}}`, "invalid_argument", "idle_ttl is"},
		"a misspelt isolation":    {"Create", `{"spec":{"isolation":"ISOLATION_FULL"}}`, "invalid_argument", "isolation"},
		"a misspelt field":        {"Create", `{"spec":{"isolatoin":"SANDBOX_ISOLATION_FULL"}}`, "invalid_argument", "isolatoin"},
		"an unknown isolation":    {"Create", `{"spec":{"isolation":256}}`, "invalid_argument", "isolation is"},
		"a negative action":       {"Create", `{"spec":{"atTimeout":-256}}`, "invalid_argument", "at_deadline is"},
		"an unknown network":      {"Create", `{"spec":{"network":{"mode":257}}}`, "invalid_argument", "network.mode is"},
		"isolation that is not":   {"Create", `{"spec":{"isolation":"SANDBOX_ISOLATION_FULL"}}`, "unimplemented", "isolation"},
		"two ends":                {"Update", `{"sandbox":"taken","timeout":"1s","extend":"1s"}`, "invalid_argument", "extend"},
		"a pause":                 {"Pause", `{"sandbox":"taken"}`, "unimplemented", `pause, by the driver "host"`},
		"a snapshot":              {"Snapshot", `{"sandbox":"taken"}`, "unimplemented", "snapshots"},
		"too many copies":         {"Fork", `{"sandbox":"taken","count":101}`, "invalid_argument", "count is 101"},
		"a place that was not":    {"List", `{"after":"x"}`, "invalid_argument", "after is no next"},
		"the metrics of the host": {"Metrics", `{"sandbox":"taken"}`, "unimplemented", "metrics"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, url+"/tend.v1.SandboxService/"+r.method, r.body, r.code, r.text) })
	}
}

// A limit that the driver does not enforce is no limit: the sandbox is refused, and
// nothing of it stays.
func TestALimitThatIsNotEnforcedIsRefused(t *testing.T) {
	_, c, _ := serveSandboxes(t)
	for field, size := range map[string]*tendv1.SandboxSize{
		"size.cpus": {Cpus: 1}, "size.memory": {Memory: 1 << 30}, "size.disk": {Disk: 1 << 30}, "size.tasks": {Tasks: 100},
	} {
		_, err := c.Create(t.Context(), connect.NewRequest(&tendv1.CreateSandboxRequest{Spec: &tendv1.SandboxSpec{Name: "limited", Size: size}}))
		if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if all := proctest.Value(c.List(t.Context(), connect.NewRequest(&tendv1.ListSandboxesRequest{})))(t).Msg.GetSandboxes(); len(all) > 0 {
		t.Errorf("%v is left", all)
	}
}

func TestACallWithTheHeaderIsForThatSandboxAlone(t *testing.T) {
	p, c, url := serveSandboxes(t)
	one, two := create(t, c, &tendv1.SandboxSpec{Name: "one", Run: &tendv1.SandboxRun{Env: map[string]string{"WHERE": "one"}}}), create(t, c, &tendv1.SandboxSpec{})
	if hello := proctest.Value(p.Hello(t.Context(), connect.NewRequest(&tendv1.HelloRequest{})))(t).Msg; !hello.GetSandboxes() {
		t.Error("the hello does not say that there are sandboxes")
	}
	machine := start(t, p, "exec cat")
	spec := &tendv1.Spec{Shell: `echo "$WHERE"; pwd`, Tag: "x"}
	id := proctest.Value(p.Start(t.Context(), inside(&tendv1.StartRequest{Spec: spec}, "one")))(t).Msg.GetInfo().GetId()
	sel := &tendv1.Selector{By: &tendv1.Selector_Tag{Tag: "x"}}

	read := proctest.Value(p.Read(t.Context(), inside(&tendv1.ReadRequest{Process: sel}, one.GetId())))(t)
	defer read.Close()
	var text []byte
	for read.Receive() {
		text = append(text, read.Msg().GetEvent().GetOutput().GetData()...)
	}
	if read.Err() != nil || string(text) != "one\n"+one.GetDir()+"\n" {
		t.Errorf("it wrote %q, %v", text, read.Err())
	}
	grep := proctest.Value(tendv1connect.NewViewServiceClient(http.DefaultClient, url).Grep(t.Context(), inside(&tendv1.GrepRequest{Process: sel, Pattern: "^one$"}, "one")))(t)
	defer grep.Close()
	if !grep.Receive() || string(grep.Msg().GetMatch().GetText()) != "one" {
		t.Errorf("grep: %v, %v", grep.Msg(), grep.Err())
	}
	listed := func(keys ...string) (ids []string) {
		for _, in := range proctest.Value(p.List(t.Context(), inside(&tendv1.ListRequest{}, keys...)))(t).Msg.GetProcesses() {
			ids = append(ids, in.GetId())
		}
		return ids
	}
	if got := listed("one"); !slices.Equal(got, []string{id}) {
		t.Errorf("in one: %v, want %s", got, id)
	}
	if got := listed(two.GetId()); len(got) != 0 {
		t.Errorf("in two: %v", got)
	}
	if got := listed(); !slices.Contains(got, machine.GetId()) || !slices.Contains(got, id) {
		t.Errorf("on the machine: %v", got)
	}
	for what, key := range map[string]string{"another sandbox": two.GetId(), "a sandbox that there is not": "3d0ca315-aff9-4fc2-be61-3b76b9a2d798"} {
		_, err := p.Get(t.Context(), inside(&tendv1.GetRequest{Process: &tendv1.Selector{By: &tendv1.Selector_Id{Id: id}}}, key))
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("the process of one in %s: %v", what, err)
		}
	}
	if _, err := p.Kill(t.Context(), inside(&tendv1.KillRequest{Process: machine}, "one")); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a sandbox kills a process of the machine: %v", err)
	}
}

// A call that names a sandbox never reaches the machine.
func TestACallForASandboxThatIsNotReadyStartsNothing(t *testing.T) {
	p, c, _ := serveSandboxes(t)
	create(t, c, &tendv1.SandboxSpec{Name: "old"})
	create(t, c, &tendv1.SandboxSpec{Name: "still"})
	proctest.Value(c.Destroy(t.Context(), connect.NewRequest(&tendv1.DestroySandboxRequest{Sandbox: "old"})))(t)
	proctest.Value(c.Stop(t.Context(), connect.NewRequest(&tendv1.StopSandboxRequest{Sandbox: "still"})))(t)
	plain, _ := serve(t, native.Config{})
	for name, r := range map[string]struct {
		client tendv1connect.ProcessServiceClient
		keys   []string
		code   connect.Code
		text   string
	}{
		"destroyed":         {p, []string{"old"}, connect.CodeNotFound, `sandbox "old"`},
		"stopped":           {p, []string{"still"}, connect.CodeFailedPrecondition, tendpb.ErrSandboxStopped.Error()},
		"an empty name":     {p, []string{""}, connect.CodeInvalidArgument, "Tend-Sandbox comes 1 times, or is empty"},
		"two names":         {p, []string{"still", "old"}, connect.CodeInvalidArgument, "Tend-Sandbox comes 2 times"},
		"a long name":       {p, []string{strings.Repeat("x", 1000)}, connect.CodeInvalidArgument, "sandbox has 1000 bytes"},
		"a server without":  {plain, []string{"old"}, connect.CodeUnimplemented, "sandboxes of this server"},
		"a path for a name": {p, []string{"../boxes/still"}, connect.CodeNotFound, "no such sandbox"},
	} {
		_, err := r.client.Start(t.Context(), inside(&tendv1.StartRequest{Spec: &tendv1.Spec{Shell: "exec sleep 1000"}}, r.keys...))
		if connect.CodeOf(err) != r.code || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, r.code, r.text)
		}
	}
	for _, client := range []tendv1connect.ProcessServiceClient{p, plain} {
		if all := proctest.Value(client.List(t.Context(), connect.NewRequest(&tendv1.ListRequest{})))(t).Msg.GetProcesses(); len(all) != 0 {
			t.Errorf("something was started: %v", all)
		}
	}
}
