package tend_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/scene"
)

const module = "github.com/tend-run/tend"

// pkg is what `go list -json` prints of one package.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string
	Deps       []string
	GoFiles    []string
}

func list(t *testing.T, args ...string) map[string]*pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Standard,Imports,Deps,GoFiles"}, args...)...)
	cmd.Stderr = os.Stderr
	out := scene.Value(cmd.StdoutPipe())(t)
	scene.Must(t, cmd.Start())
	pkgs := map[string]*pkg{}
	for dec := json.NewDecoder(out); ; {
		p := new(pkg)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs[strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")] = p
	}
	scene.Must(t, cmd.Wait())
	return pkgs
}

// ours returns the module's packages that p depends on, without the module
// path.
func ours(paths []string) (out []string) {
	for _, path := range paths {
		if path == module {
			out = append(out, ".")
		} else if rest, ok := strings.CutPrefix(path, module+"/"); ok {
			out = append(out, rest)
		}
	}
	return out
}

func within(path string, dirs ...string) bool {
	for _, d := range dirs {
		if path == d || strings.HasPrefix(path, d+"/") {
			return true
		}
	}
	return false
}

// TestDeps holds the dependency arrows of ARCHITECTURE.md.
func TestDeps(t *testing.T) {
	pkgs := list(t, "./...")

	t.Run("the roles that hold processes import std and x/sys only, and neither os/exec nor net", func(t *testing.T) {
		p := pkgs["cmd/tend-keeper"]
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			switch {
			case within(dep, "os/exec", "net", "net/http", "encoding/json"):
				t.Errorf("cmd/tend-keeper depends on %s", dep)
			case !strings.Contains(first, "."): // std
			case within(dep, module, "golang.org/x/sys", "github.com/creack/pty"):
			default:
				t.Errorf("cmd/tend-keeper depends on %s", dep)
			}
		}
		for _, dep := range ours(p.Deps) {
			if !within(dep, "cmd/internal/role", "anchor", "keeper", "spool", "process", "internal/cleansignals", "internal/eintr", "internal/overlay", "internal/procfs", "internal/seccomp", "internal/unixsock") || within(dep, "keeper/client") {
				t.Errorf("cmd/tend-keeper depends on %s", dep)
			}
		}
	})

	// Which package may import which, directly. A package that is not named here may
	// import nothing of the module.
	arrows := []struct {
		from string
		to   []string
	}{
		{"process/processtest", []string{"process", "internal/cleansignals"}},
		{"process/box", []string{"process"}},
		{"process/onexit", []string{"process"}},
		{"process", nil},
		{"spool", []string{"internal/eintr", "internal/procfs", "process"}},
		{"observe", []string{"internal/eintr", "internal/pattern", "internal/procfs", "internal/sockdiag", "process"}},
		{"view", []string{"process", "internal/pattern"}},
		{"files", []string{"internal/budget", "internal/eintr"}},
		{"driver/drivertest", []string{"process", "files", "driver", "internal/scene"}},
		{"driver/local/network", []string{"internal/eintr", "internal/lazyregexp", "internal/netns", "internal/pattern", "internal/relay", "internal/replace"}},
		{"driver/local", []string{"process", "files", "driver", "internal/eintr", "internal/procfs", "internal/replace", "keeper/disk", "keeper/failpoint", "internal/lazyregexp"}},
		{"driver", []string{"process", "files", "driver", "internal/replace"}},
		{"metrics", []string{"process"}},
		{"supervisor/config", []string{"process", "internal/pattern", "internal/typo", "internal/yamldepth"}},
		{"supervisor/held", []string{"internal/eintr", "internal/unixsock", "process"}},
		{"supervisor/run", []string{"process", "observe", "driver", "supervisor", "internal/procfs", "internal/replace"}},
		{"supervisor/adopt", []string{"process", "observe", "supervisor", "supervisor/config", "files", "internal/account", "internal/eintr", "internal/owner", "internal/pace", "internal/procfs"}},
		{"supervisor/watch", []string{"supervisor/config", "files"}},
		{"healer/agent", []string{"internal/lazyregexp"}},
		{"healer/confine", []string{"internal/overlay", "internal/replace", "internal/seccomp"}},
		{"supervisor/foreign", []string{"supervisor/config", "internal/lazyregexp"}},
		{"supervisor/probe", []string{"process", "observe", "supervisor/config"}},
		{"supervisor", []string{"process", "supervisor/config"}},
		{"healer/git", []string{"files", "internal/owner", "internal/replace"}},
		{"healer/checkpoint", []string{"healer/git", "internal/replace", "internal/lazyregexp"}},
		{"healer/guard", []string{"internal/pattern", "internal/lazyregexp"}},
		{"healer/playbook", []string{"process", "supervisor/config", "healer/git", "healer/guard", "internal/owner", "internal/pattern", "internal/lazyregexp", "internal/yamldepth"}},
		{"healer/project", []string{"process", "observe", "healer/agent", "healer/checkpoint", "healer/confine", "healer/git", "healer/guard", "healer/playbook", "internal/procfs", "internal/pace", "internal/replace"}},
		{"healer/chat", []string{"healer/agent", "healer/checkpoint", "internal/replace"}},
		{"healer/work", []string{".", "process", "observe", "supervisor", "healer", "internal/account", "internal/procfs", "internal/pace", "internal/replace"}},
		{"healer", []string{"process", "supervisor", "internal/replace"}},
		{"keeper/failpoint", nil},
		{"keeper/client", []string{"internal/eintr", "internal/procfs", "internal/unixsock", "process", "files", "internal/account", "spool", "observe", "keeper/failpoint", "keeper/board", "keeper/calm", "keeper/feed", "keeper/grace", "keeper/wire", "keeper/rundir"}},
		{"keeper", []string{"internal/eintr", "internal/overlay", "internal/procfs", "internal/seccomp", "internal/unixsock", "process", "spool", "keeper"}},
		{"anchor", []string{"internal/procfs", "internal/unixsock", "process", "keeper/failpoint", "keeper/wire", "keeper/rundir", "keeper/orphan"}},
		{"launch", []string{"anchor", "keeper/rundir", "internal/eintr", "internal/owner", "internal/payload"}},
		{"face/mcp/relay", nil},
		{"face/mcp", []string{"internal/budget", "process", "part", "view", "face", "driver", "files", "gen/tend"}},
		{"face/native", []string{
			"internal/budget", "process", "part", "view", "face", "driver", "files", "gen/tend", "internal/relay", "internal/tendpb",
		}},
		{"face/langsmith", []string{
			"internal/budget", "process", "part", "face", "face/langsmith", "files", "driver", "internal/relay", "internal/replace",
		}},
		{"face/envd", []string{"internal/budget", "process", "part", "face", "face/envd", "files", "driver", "gen/envd"}},
		{"face/page", []string{"part", "face", "internal/replace"}},
		{"face/ports", []string{"internal/budget", "part", "face", "driver"}},
		{"face/gateway", []string{"internal/budget", "process", "part", "face", "internal/replace", "internal/lazyregexp"}},
		{"face/e2bapi", []string{"internal/budget", "process", "part", "view", "face", "driver", "internal/replace", "internal/lazyregexp"}},
		{"face/distant", []string{
			"internal/budget", "process", "part", "face", "face/distant", "files", "driver", "internal/pattern", "internal/replace",
			"internal/lazyregexp",
		}},
		{"face", []string{"internal/budget", "process", "part", "face", "internal/replace", "internal/lazyregexp"}},
		{"gen", []string{"gen"}},
		{"internal/torture", []string{".", "process", "keeper/failpoint", "internal/testdaemon"}},
		{"internal/tendpb", []string{"process", "view", "gen/tend"}},
		{"internal/budget", nil},
		{"internal/account", []string{"process", "files"}},
		{"internal/doctor", nil},
		{"internal/home", []string{"internal/replace"}},
		{"internal/lazyregexp", nil},
		{"internal/pace", nil},
		{"internal/pattern", nil},
		{"internal/payload", []string{"keeper/memory"}},
		{"internal/eintr", nil},
		{"internal/overlay", nil},
		{"internal/owner", nil},
		{"internal/procfs", []string{"internal/eintr"}},
		{"internal/typo", nil},
		{"internal/yamldepth", nil},
		{"internal/seccomp", nil},
		{"internal/cleansignals", nil},
		{"internal/poorkernel", []string{"internal/unixsock"}},
		{"internal/scene", []string{"process", "internal/pace"}},
		{"internal/relay", nil},
		{"internal/replace", nil},
		{"internal/testbin", nil},
		{"internal/testkeeper", []string{"process", "keeper/client", "internal/testbin"}},
		{"internal/testdaemon", []string{"process", ".", "internal/procfs", "internal/pace"}}, // what hangs is described as the kernel shows it
		{"internal/peer", []string{"internal/sockdiag", "internal/unixsock"}},
		{"internal/netns", []string{"keeper/script"}}, // a child that enters what a thread may not
		{"internal/sockdiag", []string{"internal/eintr", "internal/netns"}},
		{"internal/unixsock", []string{"internal/eintr"}},
		{"internal/webhook", nil},
		{"part", nil},
		{"telemetry", []string{"process", "part", "internal/replace", "internal/webhook"}},
		{"server", []string{"internal/budget", "process", "face", "part", "driver", "metrics", "internal/replace", "internal/peer"}},
		{"daemon/parts", []string{
			"internal/budget", "process", "files", "face", "part", "driver", "daemon/services", "daemon/healing", "daemon/exits",
			"internal/procfs", "internal/replace", "gen/tend", "internal/tendpb",
		}},
		{"daemon/services", []string{"process", "part", "driver", "supervisor", "healer", "gen/tend", "internal/tendpb", "internal/replace"}},
		{"daemon/healing", []string{"process", "part", "supervisor", "healer", "gen/tend", "internal/pace", "internal/replace", "internal/webhook"}},
		{"daemon/exits", []string{"process", "part", "internal/replace", "internal/webhook"}},
		{"daemon", []string{
			"internal/budget", "process", "internal/procfs", "daemon/parts", "keeper/rundir", "driver/local", "face", "server", "metrics",
			"telemetry", "gen/tend", "anchor", "launch", "keeper/client", "keeper/rest", "internal/owner", "internal/replace",
		}},
		{"test/attack", nil},
		{"test/conformance", []string{"process", "anchor", "gen", "face/distant"}},
		{"test/crashtest", nil},
		{"test/dist", nil},
		{"test/fakellm", nil},
		{"test/limits", nil},
		{"test/noise", nil},
		{"test/bench", []string{".", "process", "anchor", "gen", "driver", "keeper/client", "face/distant", "internal/procfs", "internal/testbin", "internal/testdaemon"}},
		{"cmd/internal/role", []string{"anchor", "keeper", "internal/cleansignals"}},
		{"cmd/tend-keeper", []string{"cmd/internal/role"}},
		{"cmd/tend", []string{"cmd/internal/role", ".", "process", "view", "daemon", "server", "files", "driver/host", "driver/local/image", "driver/local/network", "driver/local/template", "face/distant", "face/gateway", "face/mcp/relay", "metrics", "telemetry", "anchor", "launch", "keeper/calm", "keeper/client", "keeper/failpoint", "keeper/shadow", "process/box", "gen/tend", "healer/confine", "supervisor/config", "supervisor/foreign", "supervisor/held", "healer/project", "healer/work", "internal/account", "internal/doctor", "internal/home", "internal/payload", "internal/peer", "internal/replace", "internal/sockdiag", "internal/torture", "internal/typo"}},
		{"", []string{"process", "view", "gen/tend", "internal/tendpb", "internal/home"}},
	}
	for path, p := range pkgs {
		var allowed []string
		found := false
		for _, a := range arrows {
			if path == a.from || a.from != "" && within(path, a.from) {
				allowed, found = a.to, true
				break
			}
		}
		if !found {
			t.Errorf("package %s has no place in the arrows: give it one here and in ARCHITECTURE.md", path)
			continue
		}
		for _, dep := range ours(p.Imports) {
			if !within(dep, allowed...) {
				t.Errorf("%s imports %s; it may import only %v of this module", path, dep, allowed)
			}
			if within(path, "face", "server") && within(dep, "driver") && !within(dep, "driver/route") && dep != "driver" {
				t.Errorf("%s imports %s; faces know the interface of drivers alone", path, dep)
			}
		}
	}

	t.Run("only cmd reads flags and the environment", func(t *testing.T) {
		for path, p := range pkgs {
			// processtest re-executes the test binary; testbin is told which run of the tests it is in; bench and fakellm are commands.
			if within(path, "cmd", "test/bench", "test/fakellm", "process/processtest", "internal/testbin", "internal/testkeeper") {
				continue
			}
			for _, file := range p.GoFiles {
				if path == "" && file == "default.go" {
					continue // DialDefault finds the daemon as the command line does
				}
				b := scene.Value(os.ReadFile(filepath.Join(p.Dir, file)))(t)
				for _, word := range []string{"os.Getenv(", "os.LookupEnv(", "os.Environ(", "\"flag\"\n"} {
					if strings.Contains(string(b), word) {
						t.Errorf("%s/%s uses %s", path, file, strings.TrimSpace(word))
					}
				}
			}
		}
	})

	// TestABeginningIsLight of cmd/tend measures what a start costs, whatever the cause.
	t.Run("tend is linked from no package that compiles a regular expression before main", func(t *testing.T) {
		for _, path := range append(ours(pkgs["cmd/tend"].Deps), "cmd/tend") {
			p := pkgs[strings.TrimPrefix(path, ".")]
			for _, file := range p.GoFiles {
				parsed := scene.Value(parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0))(t)
				for _, d := range parsed.Decls {
					vars, ok := d.(*ast.GenDecl)
					if !ok || vars.Tok != token.VAR {
						continue
					}
					ast.Inspect(vars, func(n ast.Node) bool {
						if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "MustCompile" {
							t.Errorf("%s/%s compiles an expression in a package variable; use lazyregexp.New", path, file)
						}
						_, isFunc := n.(*ast.FuncLit)
						return !isFunc
					})
				}
			}
		}
	})

	t.Run("the public SDK needs connect and protobuf alone", func(t *testing.T) {
		for _, dep := range pkgs[""].Deps {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !within(dep, module, "connectrpc.com/connect", "google.golang.org/protobuf", "golang.org/x/net", "golang.org/x/text") {
				t.Errorf("the SDK depends on %s", dep)
			}
		}
	})
}

// TestOnlyFilesTouchesUsersPaths: what faces and drivers do to a path that a
// user names goes through package files, which acts with that user's rights.
// Files of the daemon's own are named here, with what they are.
func TestOnlyFilesTouchesUsersPaths(t *testing.T) {
	own := map[string]string{
		"driver/drivertest/drivertest.go":         "a test",
		"driver/drivertest/isolation.go":          "a test",
		"driver/local/network/configure_linux.go": "network namespaces",
		"driver/local/network/space_linux.go":     "network namespaces",
		"driver/local/network/dns.go":             "the machine's resolv.conf",
		"driver/drivertest/machine.go":            "what the machine of a test has",
		"face/distant/journal/log.go":             "journals of sessions",
		"face/distant/sweep.go":                   "directories of sessions",
		"face/distant/native.go":                  "directories of sessions",
		"face/distant/key.go":                     "the key of the transport",
		"face/langsmith/face.go":                  "the secret behind links",
		"face/e2bapi/store.go":                    "uploads for builds",
		"face/gateway/face.go":                    "the gateway's directory",
		"face/gateway/keys.go":                    "hashes of keys",
		"face/gateway/ledger.go":                  "the log of requests",
		"face/gateway/providers.go":               "the operator's file of providers",
		"face/native/templates.go":                "files for builds",
		"face/langsmith/textmap.go":               "maps of offsets",
		"driver/host/box.go":                      "directories of sandboxes",
		"driver/local/buildcheck.go":              "where a directory leads that a build begins with: whether the daemon's own are in it",
		"driver/local/create.go":                  "directories of sandboxes",
		"driver/local/life.go":                    "directories of sandboxes",
		"driver/local/local.go":                   "directories of sandboxes",
		"driver/local/sweep.go":                   "directories of sandboxes, and the trash",
		"driver/local/template.go":                "records of templates",
		"driver/local/records.go":                 "records of templates and snapshots",
		"driver/local/base.go":                    "the files of the base template",
		"driver/local/snapshot.go":                "records of snapshots",
		"driver/local/disk.go":                    "disks of sandboxes",
		"driver/local/image/image_linux.go":       "disks of sandboxes",
		"driver/local/held.go":                    "directories of sandboxes, by names of the driver's own",
		"driver/local/layer/count_linux.go":       "files of layers, by descriptors and without following a link",
		"driver/local/idle.go":                    "what cgroups say of a box",
		"driver/local/layer/store.go":             "directories of layers",
		"driver/local/layer/sweep.go":             "directories of layers",
		"driver/local/layer/copy_linux.go":        "files of layers, by descriptors and without following a link",
		"driver/local/kernel_linux.go":            "what /proc says of a box",
		"driver/host/user.go":                     "directories of sandboxes",
		"driver/host/admit_linux.go":              "directories of sandboxes",
		"driver/host/host.go":                     "directories of sandboxes",
	}
	touches := regexp.MustCompile(`\b(os\.(Open|OpenFile|OpenRoot|OpenInRoot|Create|CreateTemp|Stat|Lstat|ReadDir|ReadFile|WriteFile|Readlink|Mkdir|MkdirAll|MkdirTemp|Remove|RemoveAll|Rename|Symlink|Link|Chmod|Chown|Lchown|Chtimes|Truncate|DirFS|CopyFS)|filepath\.(EvalSymlinks|Walk|WalkDir|Glob)|doublestar\.(Glob|GlobWalk|FilepathGlob)|(unix|syscall)\.(Open|Openat|Openat2|Creat|Stat|Lstat|Fstatat|Statx|Access|Unlink|Rename|Mkdir|Chmod|Chown|Truncate|Symlink|Link|Listxattr|Getxattr|Setxattr|Mknod|InotifyAddWatch))\(`)
	for path, p := range list(t, "./face/...", "./driver/...") {
		for _, name := range p.GoFiles {
			file := path + "/" + name
			b := scene.Value(os.ReadFile(filepath.Join(p.Dir, name)))(t)
			found := touches.FindString(string(b))
			if found != "" && own[file] == "" {
				t.Errorf("%s calls %s): let package files do it for the user, or name the file here and say what of the daemon's own it touches", file, found)
			}
			if found == "" {
				delete(own, file)
			}
		}
	}
}
