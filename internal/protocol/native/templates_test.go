package native_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// builder is a driver whose builds read their files and wait to be let go.
type builder struct {
	*host.Driver
	mu    sync.Mutex
	built driver.BuildSpec  // guarded by mu
	files map[string]string // by hash; guarded by mu
	done  driver.Build      // guarded by mu
}

func (b *builder) Build(_ context.Context, s driver.BuildSpec) (driver.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.built, b.files, b.done = s, map[string]string{}, driver.Build{ID: driver.NewBuildID(), Name: s.Name, Tags: s.Tags, Status: driver.BuildRunning}
	for _, step := range s.Steps {
		if step.Kind != "COPY" {
			continue
		}
		f, err := s.Blob(step.Hash)
		if err != nil {
			return driver.Build{}, err
		}
		text, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return driver.Build{}, err
		}
		b.files[step.Hash] = string(text)
	}
	if _, err := s.Blob("../secret"); err == nil {
		return driver.Build{}, errors.New("a blob outside of the files was opened")
	}
	return b.done, nil
}

func (b *builder) GetBuild(_ context.Context, id driver.BuildID, from int) (driver.Build, []driver.LogEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id != b.done.ID {
		return driver.Build{}, nil, driver.ErrNotFound
	}
	logs := []driver.LogEntry{{Level: "info", Message: "one", Fields: map[string]string{"step": "1"}}, {Level: "info", Message: "two"}}
	return b.done, logs[min(from, len(logs)):], nil
}

func (b *builder) end(status driver.BuildStatus, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done.Status, b.done.Reason, b.done.FailedStep = status, reason, "1"
}

func (b *builder) Template(context.Context, string) (driver.Template, error) {
	return driver.Template{}, driver.ErrNotFound
}
func (b *builder) Templates(context.Context) ([]driver.Template, error) { return nil, nil }
func (b *builder) DeleteTemplate(_ context.Context, _ string) error     { return driver.ErrNotFound }
func copyStep(source string) *tendv1.TemplateStep {
	return &tendv1.TemplateStep{Kind: "COPY", Args: []string{source, "/srv/"}}
}

func TestABuildGetsTheFilesOfItsSteps(t *testing.T) {
	m := testkeeper.New(t)
	dir := filepath.Join(t.TempDir(), "builds")
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "left"), 0o700)) // by a server before
	b := &builder{Driver: proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)}
	_, url := serve(t, native.Config{Manager: m, Driver: b, Dir: dir})
	c := tendv1connect.NewSandboxServiceClient(http.DefaultClient, url)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	proctest.Must(t, w.WriteHeader(&tar.Header{Name: "a", Mode: 0o600}))
	proctest.Must(t, w.Close())
	sum := sha256.Sum256(archive.Bytes())
	hash := hex.EncodeToString(sum[:])

	spec := &tendv1.TemplateSpec{Name: "t", Steps: []*tendv1.TemplateStep{{Kind: "RUN", Args: []string{"true"}}, copyStep("a"), copyStep("b")}}
	s := c.BuildTemplate(t.Context())
	proctest.Must(t, s.Send(&tendv1.BuildTemplateRequest{Spec: spec}))
	proctest.Must(t, s.Send(&tendv1.BuildTemplateRequest{Step: 1, Data: archive.Bytes()[:100]}))
	proctest.Must(t, s.Send(&tendv1.BuildTemplateRequest{Step: 1, Data: archive.Bytes()[100:]}))
	proctest.Must(t, s.Send(&tendv1.BuildTemplateRequest{Step: 2, Data: []byte("other")}))
	id := proctest.Value(s.CloseAndReceive())(t).Msg.GetBuild()
	b.mu.Lock()
	if b.built.Steps[1].Hash != hash || b.files[hash] != archive.String() || b.files[b.built.Steps[2].Hash] != "other" || b.built.Steps[0].Hash != "" {
		t.Errorf("it was built from %+v", b.built.Steps)
	}
	b.mu.Unlock()
	if all := proctest.Value(os.ReadDir(dir))(t); len(all) != 1 || all[0].Name() == "left" {
		t.Errorf("while it runs there are %v", all)
	}

	// The log from an index on, and the end.
	follow := proctest.Value(c.FollowBuild(t.Context(), connect.NewRequest(&tendv1.FollowBuildRequest{Build: id, From: 1})))(t)
	defer follow.Close()
	if !follow.Receive() || len(follow.Msg().GetLogs()) != 1 || follow.Msg().GetLogs()[0].GetMessage() != "two" || follow.Msg().GetNext() != 2 {
		t.Errorf("the log begins with %v, %v", follow.Msg(), follow.Err())
	}
	b.end(driver.BuildFailed, "broken")
	for follow.Receive() && follow.Msg().GetBuild() == nil {
		continue
	}
	if end := follow.Msg().GetBuild(); end.GetReady() || end.GetReason() != "broken" || end.GetFailedStep() != "1" {
		t.Errorf("it ended with %v, %v", end, follow.Err())
	}
	proctest.Eventually(t, "the files are removed", func() bool { return len(proctest.Value(os.ReadDir(dir))(t)) == 0 })
}

func TestWrongBuildsAreRefusedAndLeaveNothing(t *testing.T) {
	m := testkeeper.New(t)
	dir := filepath.Join(t.TempDir(), "builds")
	b := &builder{Driver: proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)}
	_, url := serve(t, native.Config{Manager: m, Driver: b, Dir: dir})
	c := tendv1connect.NewSandboxServiceClient(http.DefaultClient, url)
	spec := &tendv1.TemplateSpec{Name: "t", Steps: []*tendv1.TemplateStep{copyStep("a"), {Kind: "RUN", Args: []string{"x"}}, copyStep("b")}}
	for name, tt := range map[string]struct {
		messages []*tendv1.BuildTemplateRequest
		text     string
	}{
		"nothing":            {nil, "spec is missing"},
		"no spec":            {[]*tendv1.BuildTemplateRequest{{Data: []byte("x")}}, "spec is missing"},
		"a second spec":      {[]*tendv1.BuildTemplateRequest{{Spec: spec}, {Spec: spec}}, "spec is set in a later message"},
		"files for a RUN":    {[]*tendv1.BuildTemplateRequest{{Spec: spec}, {Step: 1, Data: []byte("x")}}, "step is 1, which is no COPY"},
		"files for no step":  {[]*tendv1.BuildTemplateRequest{{Spec: spec}, {Step: 4_000_000_000, Data: []byte("x")}}, "which is no COPY of the 3 steps"},
		"files in disorder":  {[]*tendv1.BuildTemplateRequest{{Spec: spec}, {Step: 2, Data: []byte("x")}, {Step: 0, Data: []byte("x")}}, "step is 0 after 2"},
		"thousands of steps": {[]*tendv1.BuildTemplateRequest{{Spec: &tendv1.TemplateSpec{Name: "t", Steps: make([]*tendv1.TemplateStep, 1001)}}}, "steps has 1001 entries"},
		"a COPY without any": {[]*tendv1.BuildTemplateRequest{{Spec: spec}, {Step: 0, Data: []byte("x")}}, "not exist"},
	} {
		s := c.BuildTemplate(t.Context())
		for _, m := range tt.messages {
			for i, step := range m.GetSpec().GetSteps() {
				if step == nil {
					m.Spec.Steps[i] = &tendv1.TemplateStep{Kind: "RUN", Args: []string{"x"}}
				}
			}
			_ = s.Send(m) // the answer says why it was not taken
		}
		if _, err := s.CloseAndReceive(); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("there are left %v, %v", all, err)
	}
	for id, text := range map[string]string{"../x": "and no ID", "3d0ca315-aff9-4fc2-be61-3b76b9a2d798": "build again"} {
		s := proctest.Value(c.FollowBuild(t.Context(), connect.NewRequest(&tendv1.FollowBuildRequest{Build: id})))(t)
		if s.Receive() || s.Err() == nil || !strings.Contains(s.Err().Error(), text) {
			t.Errorf("build %s: %v", id, s.Err())
		}
		s.Close()
	}
}
