package services

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// kept is a part that runs until the test ends, or until it is stopped.
func kept(t *testing.T, m process.Manager, dir string) (s *Services, stop func()) {
	t.Helper()
	s = Open(Config{Manager: m, Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func fileOf(dir, text string, env map[string]string) *File {
	return &File{Source: config.Source{Dir: dir, Text: []byte(text)}, Env: env}
}

func TestADamagedRecordIsSaidByEachCallAndEndsNothing(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	s, stop := kept(t, m, dir)
	proctest.Must(t, s.Apply(t.Context(), fileOf("/", "services: {x: {command: exec sleep 1000}}", nil)))
	proctest.Must(t, s.Start(t.Context(), "", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proctest.Eventually(t, "it runs", func() bool {
		all := proctest.Value(s.sup.List(ctx))(t)
		return len(all) == 1 && all[0].State.Phase == supervisor.Running
	})
	stop()
	good := proctest.Value(os.ReadFile(filepath.Join(dir, "x.json")))(t)
	for _, damage := range []string{"", "{", "null", `{"rules": null}`, `{"rules": 3, "token": "a"}`} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte(damage), 0o600))
		s, stop = kept(t, m, dir)
		for what, err := range map[string]error{
			"apply":   s.Apply(ctx, fileOf("/", "services: {x: {command: sleep 1}}", nil)),
			"start":   s.Start(ctx, "", nil),
			"stop":    s.Stop(ctx, "", nil),
			"restart": s.Restart(ctx, "", []string{"x"}),
		} {
			if !errors.Is(err, process.ErrDamaged) || !strings.Contains(err.Error(), "x.json") {
				t.Errorf("%q: %s: got %v", damage, what, err)
			}
		}
		if _, err := (API{s}).List(ctx); !errors.Is(err, process.ErrDamaged) {
			t.Errorf("%q: list: got %v", damage, err)
		}
		if !strings.Contains(s.Status()["trouble"], "x.json") {
			t.Errorf("%q: the status is %v", damage, s.Status())
		}
		stop()
	}
	if live := proctest.Value(m.List(ctx, process.Filter{Live: true}))(t); len(live) != 1 {
		t.Errorf("%d processes live", len(live))
	}
	// Mended, it continues with the same process.
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "x.json"), good, 0o600))
	s, _ = kept(t, m, dir)
	proctest.Eventually(t, "it is looked after again", func() bool {
		all := proctest.Value(s.sup.List(ctx))(t)
		return len(all) == 1 && all[0].State.Ready && all[0].State.Run == 1
	})
}

func TestEnvironmentsAreBounded(t *testing.T) {
	s, _ := kept(t, testkeeper.New(t), t.TempDir())
	refused := func(what, text string, env map[string]string, field string) {
		t.Helper()
		var invalid *process.InvalidError
		if err := s.Apply(t.Context(), fileOf("/", text, env)); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %.200v", what, err)
		}
	}
	large := map[string]string{"A": strings.Repeat("x", MaxEnv)}
	refused("of one", "services: {x: {command: y}}", large, "services.x.env")
	proctest.Must(t, s.Apply(t.Context(), fileOf("/", "services: {x: {command: y, inherit: none}}", large)))
	half := map[string]string{"A": strings.Repeat("x", MaxEnv-10)}
	var many strings.Builder
	many.WriteString("services:\n")
	for i := range MaxEnvs/MaxEnv + 1 {
		many.WriteString("  s" + strings.Repeat("x", i%60) + string(rune('a'+i/60)) + ": {command: y}\n")
	}
	if err := s.Apply(t.Context(), fileOf("/", many.String(), half)); err == nil || !strings.Contains(err.Error(), "for all services") {
		t.Errorf("of all: got %.200v", err)
	}
	refused("a file that is wrong", "services: {x: {comand: y}}", nil, "text")
	var invalid *process.InvalidError
	if err := s.Apply(t.Context(), fileOf("app", "services: {x: {command: y}}", nil)); !errors.As(err, &invalid) || invalid.Field != "dir" {
		t.Errorf("a directory that is not absolute: got %v", err)
	}
	if all := proctest.Value(s.sup.List(t.Context()))(t); len(all) != 1 || all[0].Name != "x" {
		t.Errorf("what is refused was taken: %+v", all)
	}
}

func TestTheFileOfAnEarlierVersionIsAProject(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	note := func(file string) { proctest.Must(t, os.WriteFile(filepath.Join(dir, fileName), []byte(file), 0o600)) }
	for _, step := range []struct{ file, want string }{
		{"/srv/My Shop/tend.yaml", "MyShop /srv/My Shop/tend.yaml"},
		{"/-/tend.yaml", "project /-/tend.yaml"}, // such a version has run in between
	} {
		note(step.file)
		s, stop := kept(t, m, dir)
		all := proctest.Value(API{s}.List(t.Context()))(t).GetProjects()
		if len(all) != 1 || all[0].GetName()+" "+all[0].GetFile() != step.want {
			t.Errorf("after %s there are %v; %s is wanted", step.file, all, step.want)
		}
		proctest.Must(t, s.Apply(t.Context(), fileOf(filepath.Dir(step.file), "services: {x: {command: exec sleep 1000}}", nil)))
		proctest.Must(t, s.Start(t.Context(), "", nil))
		second := fileOf("/", "services: {x: {command: exec sleep 1000}}", nil)
		second.Project = "second"
		proctest.Must(t, s.Apply(t.Context(), second))
		names := ""
		for _, one := range proctest.Value(s.List(t.Context()))(t) {
			names += " " + one.Name
		}
		if names != " x second/x" && names != " second/x x" {
			t.Errorf("after %s the services are%s", step.file, names)
		}
		second.Text = nil // forgets it
		proctest.Must(t, s.Apply(t.Context(), second))
		second.Project = "none"
		if err := s.Apply(t.Context(), second); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("to forget what there is not: got %v", err)
		}
		stop()
	}
}
