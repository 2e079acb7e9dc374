package interpreter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// builder is a driver whose builds are what the test says.
type builder struct {
	driver.Driver
	driver.Templater

	mu     sync.Mutex
	specs  []driver.BuildSpec
	build  driver.Build
	logs   []driver.LogEntry
	exists *driver.Template
}

func (b *builder) Build(_ context.Context, spec driver.BuildSpec) (driver.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.specs = append(b.specs, spec)
	b.build.ID = driver.NewBuildID()
	return b.build, nil
}

func (b *builder) GetBuild(_ context.Context, id driver.BuildID, from int) (driver.Build, []driver.LogEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id != b.build.ID {
		return driver.Build{}, nil, driver.ErrNotFound
	}
	return b.build, b.logs[from:], nil
}

func (b *builder) Template(context.Context, string) (driver.Template, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.exists == nil {
		return driver.Template{}, driver.ErrNotFound
	}
	return *b.exists, nil
}

func (b *builder) set(status driver.BuildStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.build.Status = status
}

func TestTheTemplateIsBuiltOnceForAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &builder{build: driver.Build{Status: driver.BuildRunning}, logs: []driver.LogEntry{{Message: "pip installs\n"}}}
		all := &interpreter.Templates{Driver: b}
		hurried, cancel := context.WithCancel(t.Context())
		cancelled, waiting := make(chan error, 1), make(chan error, 2)
		go func() { cancelled <- all.Prepare(hurried) }()
		for range cap(waiting) {
			go func() { waiting <- all.Prepare(t.Context()) }()
		}
		synctest.Wait()
		cancel()
		err := <-cancelled
		if e, ok := errors.AsType[*interpreter.BuildingError](err); !ok || e.Doing != "pip installs" || !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("a client that waits no longer: %v", err)
		}
		b.set(driver.BuildReady)
		for range cap(waiting) {
			if err := <-waiting; err != nil {
				t.Errorf("one that waits: %v", err)
			}
		}
		if len(b.specs) != 1 {
			t.Fatalf("%d builds", len(b.specs))
		}
		spec := b.specs[0]
		env := spec.Steps[len(spec.Steps)-1].Args
		for _, tc := range []struct {
			what   string
			env    map[string]string
			builds int
		}{
			{"it is there", map[string]string{env[0]: env[1]}, 1},
			{"it is somebody's own", nil, 1},
			{"it is of another version", map[string]string{env[0]: "old"}, 2},
		} {
			b.exists = &driver.Template{Run: driver.RunConfig{Env: tc.env}}
			if err := all.Prepare(t.Context()); err != nil || len(b.specs) != tc.builds {
				t.Errorf("%s: %v, %d builds", tc.what, err, len(b.specs))
			}
		}
		// What somebody has installed beside stays when it is built again.
		more, npm := []string{"plotly>=6,<7", "jjava"}, []string{"zod@^4", "@types/node"}
		old := map[string]string{env[0]: "old", "TEND_CODE_INTERPRETER_PACKAGES": strings.Join(more, " "),
			"TEND_CODE_INTERPRETER_NPM_PACKAGES": strings.Join(npm, " ")}
		b.exists = &driver.Template{Run: driver.RunConfig{Env: old}}
		if err := all.Prepare(t.Context()); err != nil {
			t.Errorf("with more packages: %v", err)
		}
		with, err := interpreter.Recipe(more, npm)
		steps, built := fmt.Sprint(with.Steps), fmt.Sprint(b.specs[len(b.specs)-1].Steps)
		if err != nil || built != steps || !strings.Contains(steps, "'plotly>=6,<7' 'jjava'") ||
			!strings.Contains(steps, "'zod@^4' '@types/node'") {
			t.Errorf("with more packages: %s %v", built, err)
		}
		b.exists = nil
		b.set(driver.BuildFailed)
		if e, ok := errors.AsType[*interpreter.FailedError](all.Prepare(t.Context())); !ok || !strings.Contains(e.Why, "pip installs") {
			t.Errorf("a build that fails: %v", e)
		}
		// The files of the kernels are in the blob that the step names.
		for _, step := range spec.Steps {
			if step.Kind != "COPY" {
				continue
			}
			r, err := spec.Blob(step.Hash)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil || !strings.Contains(string(text), "kernels/foreign/engine.cjs") {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		}
	})
}

func TestWhatIsNoPackageIsNotInstalled(t *testing.T) {
	t.Parallel()
	check := func(npm bool, good, bad []string) {
		recipe := func(packages ...string) error {
			pip, of := packages, []string(nil)
			if npm {
				pip, of = nil, packages
			}
			_, err := interpreter.Recipe(pip, of)
			return err
		}
		for _, p := range bad {
			if e, ok := errors.AsType[*interpreter.PackageError](recipe("numpy", p)); !ok || e.Package != p || e.NPM != npm {
				t.Errorf("%q, npm %t: %v", p, npm, e)
			}
		}
		for _, p := range good {
			if err := recipe(p); err != nil {
				t.Errorf("%q, npm %t: %v", p, npm, err)
			}
		}
	}
	check(false, []string{"a", "A.b-c_d", "x[y,z]", "x==1.0", "x[y]>=1,!=2.*,<3", "x~=1", "x===1+local"},
		[]string{"", "a b", "x'; touch y; '", "-r", "--index-url=x", "./x", "x @ http://y", "x>=", "x[", "x=1", "x\n"})
	check(true, []string{"a", "a.b-c_d", "@x/y", "@x/y@1.2.3-rc.1", "x@^1", "x@~1.2", "x@latest", "x@1.x", "x@*"},
		[]string{"", "a b", "x'; touch y; '", "-g", "./x", "../x", "x/y", "@x", "@/y", "x@", "x@http://y", "x@npm:y", "git+ssh://x",
			"x@file:..", "X", "x\n"})
}
