// Package testbin builds the programs of this tree for tests, each variant once for all packages that need it.
//
// The programs lie in the user's cache directory, one directory for each checkout, and `go build` decides what is stale: it does
// nothing if nothing has changed. A test works with links of its own, so a build of another test takes nothing away.
package testbin

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variant names one build of the two programs.
type Variant string

const (
	Released Variant = "released" // as people get it: tend carries tend-keeper
	Bare     Variant = "bare"     // tend carries nothing, as after `go install`; it uses the tend-keeper beside it, if there is one
	Previous Variant = "previous" // the keeper writes the snapshots of the version before
	Points   Variant = "points"   // the roles can be killed at named points
	Roles    Variant = "roles"    // tend-keeper alone, as it is in Released
	Model    Variant = "model"    // test/fakellm alone, which plays a language model
)

// sameRun is a variable of the environment that names one run of all tests, in which no source
// changes: what was built in it is not looked at again. Without it `go build` is asked each
// time, which takes half a second of CPU to find that nothing has changed.
const sameRun = "TEND_TEST_RUN"

// Made is a variable of the environment that names a directory which Make has filled: then
// nothing is built. It is for a test program that is run as another user.
const Made = "TEND_TEST_BIN"

// FakeLLM is the path of test/fakellm below the directory that Make has filled with Model.
func FakeLLM(dir string) string { return filepath.Join(dir, string(Model), "fakellm") }

// Tend is the path of tend below the directory that Make has filled.
func (v Variant) Tend(dir string) string { return filepath.Join(dir, string(v), "tend") }

// Keeper is the path of tend-keeper below the directory that Make has filled.
func (v Variant) Keeper(dir string) string { return filepath.Join(dir, string(v), "tend-keeper") }

func (v Variant) tags() string {
	switch v {
	case Previous:
		return "tend_previous"
	case Points:
		return "tend_failpoint"
	}
	return ""
}

// KeepNoResult has go test run this test program again the next time, whatever is the same. It is for a TestMain:
// go test knows only the files that tests open after it, and not those that make the programs that they run.
func KeepNoResult() {
	flag.Parse()
	if err := flag.Set("test.testlogfile", ""); err != nil { // without the list of files it keeps no result
		panic(err)
	}
}

// Main makes variants of the programs, runs the tests with the directory that
// holds them, removes it, and returns the status for os.Exit.
func Main(tests func(dir string) int, variants ...Variant) int {
	KeepNoResult()
	dir, err := os.MkdirTemp("", "tend-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = Make(dir, variants...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests(dir)
}

// Make puts variants of the programs into dir: dir/VARIANT/tend and
// dir/VARIANT/tend-keeper; Bare has no keeper, Roles has no tend, and Model has fakellm alone.
func Make(dir string, variants ...Variant) error {
	if made := os.Getenv(Made); made != "" {
		return linkMade(dir, made, variants)
	}
	root, err := Root()
	if err != nil {
		return err
	}
	kept := dir
	if cache, err := os.UserCacheDir(); err == nil {
		kept = filepath.Join(cache, "tend-test", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:16])
	}
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(kept, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	for _, v := range variants {
		stamp := filepath.Join(kept, string(v)+".run")
		if err := once(stamp, os.Getenv(sameRun), func() error { return v.build(root, kept) }); err != nil {
			return err
		}
		if kept == dir {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, string(v)), 0o755); err != nil {
			return err
		}
		for _, program := range v.programs(kept) {
			name, err := filepath.Rel(kept, program)
			if err != nil {
				return err
			}
			if err := Link(program, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkMade fills a directory with links to what was made.
func linkMade(dir, made string, variants []Variant) error {
	for _, v := range variants {
		if err := os.MkdirAll(filepath.Join(dir, string(v)), 0o755); err != nil {
			return err
		}
		for i, program := range v.programs(made) {
			if _, err := os.Stat(program); err != nil {
				return err
			}
			if err := os.Symlink(program, v.programs(dir)[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Root is the directory of the module.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("not inside the module: run it from the repository")
	}
	return filepath.Dir(mod), nil
}

// programs are the paths of the programs of a variant below dir.
func (v Variant) programs(dir string) []string {
	switch v {
	case Bare:
		return []string{v.Tend(dir)}
	case Roles:
		return []string{v.Keeper(dir)}
	case Model:
		return []string{FakeLLM(dir)}
	}
	return []string{v.Tend(dir), v.Keeper(dir)}
}

// once builds, unless that was done in the same run, of which the file stamp tells. A build
// that fails is repeated.
func once(stamp, run string, build func() error) error {
	if last, err := os.ReadFile(stamp); err == nil && run != "" && string(last) == run {
		return nil
	}
	if err := os.Remove(stamp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := build(); err != nil || run == "" {
		return err
	}
	return os.WriteFile(stamp, []byte(run), 0o600)
}

// build has the same flags as `make build`.
func (v Variant) build(root, dir string) error {
	if v == Model {
		return goBuild(root, "-ldflags", "-s -w", "-o", FakeLLM(dir), "./test/fakellm")
	}
	inside := ""
	if v != Bare {
		inside = v.Keeper(dir)
		if err := goBuild(root, "-tags", v.tags(), "-ldflags", "-s -w", "-o", inside, "./cmd/tend-keeper"); err != nil {
			return err
		}
	}
	if v == Roles {
		return nil
	}
	// What an earlier `make build` left in the tree may be old.
	packed := ""
	if v != Bare {
		packed = filepath.Join(dir, string(v)+".lz4")
		if err := goTool(root, "run", "./cmd/tend-keeper/pack", inside, packed); err != nil {
			return err
		}
	}
	replace := map[string]string{filepath.Join(root, "internal/core/embedded/tend-keeper.lz4"): packed}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, string(v)+".json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	flags, err := os.ReadFile(filepath.Join(root, "cmd/tend/flags"))
	if err != nil {
		return err
	}
	return goBuild(root, append(strings.Fields(string(flags)), "-tags", v.tags(), "-overlay", file, "-ldflags", "-s -w",
		"-o", v.Tend(dir), "./cmd/tend")...)
}

func goBuild(root string, args ...string) error {
	return goTool(root, append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
}

func goTool(root string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// Link makes another name for a program, or a copy on another filesystem.
func Link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
