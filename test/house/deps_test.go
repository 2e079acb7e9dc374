package house_test

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

	"github.com/tend-run/tend/internal/support/scene"
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
			if !within(dep, "internal/cli/role", "anchor", "keeper", "spool", "process", "internal/lib/cleansignals", "internal/lib/eintr", "internal/lib/overlay", "internal/lib/procfs", "internal/lib/seccomp", "internal/lib/unixsock") || within(dep, "internal/core/client") {
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
		{"process/processtest", []string{"process", "internal/lib/cleansignals"}},
		{"internal/core/box", []string{"process"}},
		{"internal/lib/onexit", []string{"process"}},
		{"process", nil},
		{"spool", []string{"internal/lib/eintr", "internal/lib/procfs", "process"}},
		{"observe", []string{"internal/lib/eintr", "internal/lib/pattern", "internal/lib/procfs", "internal/lib/sockdiag", "process"}},
		{"view", []string{"process", "internal/lib/pattern"}},
		{"files", []string{"internal/lib/budget", "internal/lib/eintr"}},
		{"internal/sandbox/drivertest", []string{"process", "files", "driver", "internal/support/scene"}},
		{"internal/sandbox/network", []string{"internal/lib/eintr", "internal/lib/lazyregexp", "internal/lib/netns", "internal/lib/pattern", "internal/lib/relay", "internal/lib/replace"}},
		{"internal/sandbox/local", []string{"process", "files", "driver", "internal/lib/eintr", "internal/lib/procfs", "internal/lib/replace", "internal/core/disk", "internal/core/failpoint", "internal/lib/lazyregexp"}},
		{"driver", []string{"process", "files", "driver", "internal/lib/replace"}},
		{"metrics", []string{"process"}},
		{"internal/service/config", []string{"process", "internal/lib/pattern", "internal/lib/typo", "internal/lib/yamldepth"}},
		{"internal/service/held", []string{"internal/lib/eintr", "internal/lib/unixsock", "process"}},
		{"internal/service/run", []string{"process", "observe", "driver", "supervisor", "internal/lib/procfs", "internal/lib/replace"}},
		{"internal/service/adopt", []string{"process", "observe", "supervisor", "internal/service/config", "files", "internal/files/account", "internal/lib/eintr", "internal/lib/owner", "internal/lib/pace", "internal/lib/procfs"}},
		{"internal/service/watch", []string{"internal/service/config", "files"}},
		{"internal/heal/agent", []string{"internal/lib/lazyregexp"}},
		{"internal/heal/confine", []string{"internal/lib/overlay", "internal/lib/replace", "internal/lib/seccomp"}},
		{"internal/service/foreign", []string{"internal/service/config", "internal/lib/lazyregexp"}},
		{"internal/service/probe", []string{"process", "observe", "internal/service/config"}},
		{"supervisor", []string{"process", "internal/service/config"}},
		{"internal/heal/git", []string{"files", "internal/lib/owner", "internal/lib/replace"}},
		{"internal/heal/checkpoint", []string{"internal/heal/git", "internal/lib/replace", "internal/lib/lazyregexp"}},
		{"internal/heal/guard", []string{"internal/lib/pattern", "internal/lib/lazyregexp"}},
		{"internal/heal/playbook", []string{"process", "internal/service/config", "internal/heal/git", "internal/heal/guard", "internal/lib/owner", "internal/lib/pattern", "internal/lib/lazyregexp", "internal/lib/yamldepth"}},
		{"internal/heal/project", []string{"process", "observe", "internal/heal/agent", "internal/heal/checkpoint", "internal/heal/confine", "internal/heal/git", "internal/heal/guard", "internal/heal/playbook", "internal/lib/procfs", "internal/lib/pace", "internal/lib/replace"}},
		{"internal/heal/chat", []string{"internal/heal/agent", "internal/heal/checkpoint", "internal/lib/replace"}},
		{"internal/heal/work", []string{".", "process", "observe", "supervisor", "healer", "internal/files/account", "internal/lib/procfs", "internal/lib/pace", "internal/lib/replace"}},
		{"healer", []string{"process", "supervisor", "internal/lib/replace"}},
		{"internal/core/failpoint", nil},
		{"internal/core/client", []string{"internal/lib/eintr", "internal/lib/procfs", "internal/lib/unixsock", "process", "files", "internal/files/account", "spool", "observe", "internal/core/failpoint", "internal/core/board", "internal/core/calm", "internal/core/feed", "internal/core/grace", "internal/core/wire", "internal/core/rundir"}},
		{"keeper", []string{"internal/lib/eintr", "internal/lib/overlay", "internal/lib/procfs", "internal/lib/seccomp", "internal/lib/unixsock", "process", "spool", "keeper"}},
		{"anchor", []string{"internal/lib/procfs", "internal/lib/unixsock", "process", "internal/core/failpoint", "internal/core/wire", "internal/core/rundir", "internal/core/orphan"}},
		{"launch", []string{"anchor", "internal/core/rundir", "internal/lib/eintr", "internal/lib/owner", "internal/core/payload"}},
		{"internal/protocol/mcp/relay", nil},
		{"internal/protocol/mcp", []string{"internal/lib/budget", "process", "part", "view", "face", "driver", "files", "gen/tend"}},
		{"internal/protocol/native", []string{
			"internal/lib/budget", "process", "part", "view", "face", "driver", "files", "gen/tend", "internal/lib/relay", "internal/tendpb",
		}},
		{"internal/protocol/langsmith", []string{
			"internal/lib/budget", "process", "part", "face", "internal/protocol/langsmith", "files", "driver", "internal/lib/relay", "internal/lib/replace",
		}},
		{"internal/protocol/envd", []string{"internal/lib/budget", "process", "part", "face", "internal/protocol/envd", "files", "driver", "internal/gen/envd"}},
		{"internal/protocol/page", []string{"part", "face", "internal/lib/replace"}},
		{"internal/protocol/ports", []string{"internal/lib/budget", "part", "face", "driver"}},
		{"internal/protocol/gateway", []string{"internal/lib/budget", "process", "part", "face", "internal/lib/replace", "internal/lib/lazyregexp"}},
		{"internal/protocol/e2bapi", []string{"internal/lib/budget", "process", "part", "view", "face", "driver", "internal/lib/replace", "internal/lib/lazyregexp"}},
		{"internal/protocol/distant", []string{
			"internal/lib/budget", "process", "part", "face", "internal/protocol/distant", "files", "driver", "internal/lib/pattern", "internal/lib/replace",
			"internal/lib/lazyregexp",
		}},
		{"face", []string{"internal/lib/budget", "process", "part", "face", "internal/lib/replace", "internal/lib/lazyregexp"}},
		{"gen", []string{"gen"}},
		{"internal/cli/torture", []string{".", "process", "internal/core/failpoint", "internal/support/testdaemon"}},
		{"internal/tendpb", []string{"process", "view", "gen/tend"}},
		{"internal/lib/budget", nil},
		{"internal/files/account", []string{"process", "files"}},
		{"internal/cli/doctor", nil},
		{"internal/lib/home", []string{"internal/lib/replace"}},
		{"internal/lib/lazyregexp", nil},
		{"internal/lib/pace", nil},
		{"internal/lib/pattern", nil},
		{"internal/core/payload", []string{"internal/core/memory"}},
		{"internal/lib/eintr", nil},
		{"internal/lib/overlay", nil},
		{"internal/lib/owner", nil},
		{"internal/lib/procfs", []string{"internal/lib/eintr"}},
		{"internal/lib/typo", nil},
		{"internal/lib/yamldepth", nil},
		{"internal/lib/seccomp", nil},
		{"internal/lib/cleansignals", nil},
		{"internal/lib/poorkernel", []string{"internal/lib/unixsock"}},
		{"internal/support/scene", []string{"process", "internal/lib/pace"}},
		{"internal/lib/relay", nil},
		{"internal/lib/replace", nil},
		{"internal/support/testbin", nil},
		{"internal/support/testkeeper", []string{"process", "internal/core/client", "internal/support/testbin"}},
		{"internal/support/testdaemon", []string{"process", ".", "internal/lib/procfs", "internal/lib/pace"}}, // what hangs is described as the kernel shows it
		{"internal/lib/peer", []string{"internal/lib/sockdiag", "internal/lib/unixsock"}},
		{"internal/lib/netns", []string{"internal/core/script"}}, // a child that enters what a thread may not
		{"internal/lib/sockdiag", []string{"internal/lib/eintr", "internal/lib/netns"}},
		{"internal/lib/unixsock", []string{"internal/lib/eintr"}},
		{"internal/lib/webhook", nil},
		{"part", nil},
		{"telemetry", []string{"process", "part", "internal/lib/replace", "internal/lib/webhook"}},
		{"server", []string{"internal/lib/budget", "process", "face", "part", "driver", "metrics", "internal/lib/replace", "internal/lib/peer"}},
		{"internal/server/parts", []string{
			"internal/lib/budget", "process", "files", "face", "part", "driver", "internal/server/services", "internal/server/healing", "internal/server/exits",
			"internal/lib/procfs", "internal/lib/replace", "gen/tend", "internal/tendpb",
		}},
		{"internal/server/services", []string{"process", "part", "driver", "supervisor", "healer", "gen/tend", "internal/tendpb", "internal/lib/replace"}},
		{"internal/server/healing", []string{"process", "part", "supervisor", "healer", "gen/tend", "internal/lib/pace", "internal/lib/replace", "internal/lib/webhook"}},
		{"internal/server/exits", []string{"process", "part", "internal/lib/replace", "internal/lib/webhook"}},
		{"daemon", []string{
			"internal/lib/budget", "process", "internal/lib/procfs", "internal/server/parts", "internal/core/rundir", "internal/sandbox/local", "face", "server", "metrics",
			"telemetry", "gen/tend", "anchor", "launch", "internal/core/client", "internal/core/rest", "internal/lib/owner", "internal/lib/replace",
		}},
		{"test/attack", nil},
		{"test/conformance", []string{"process", "anchor", "gen", "internal/protocol/distant"}},
		{"test/crashtest", nil},
		{"test/dist", nil},
		{"test/fakellm", nil},
		{"test/limits", nil},
		{"test/noise", nil},
		{"bench", []string{".", "process", "anchor", "gen", "driver", "internal/core/client", "internal/protocol/distant", "internal/lib/procfs", "internal/support/testbin", "internal/support/testdaemon"}},
		{"internal/cli/role", []string{"anchor", "keeper", "internal/lib/cleansignals"}},
		{"cmd/tend-keeper", []string{"internal/cli/role"}},
		{"cmd/tend", []string{"internal/cli/role", ".", "process", "view", "daemon", "server", "files", "internal/sandbox/host", "internal/sandbox/image", "internal/sandbox/network", "internal/sandbox/template", "internal/protocol/distant", "internal/protocol/gateway", "internal/protocol/mcp/relay", "metrics", "telemetry", "anchor", "launch", "internal/core/calm", "internal/core/client", "internal/core/failpoint", "internal/core/shadow", "internal/core/box", "gen/tend", "internal/heal/confine", "internal/service/config", "internal/service/foreign", "internal/service/held", "internal/heal/project", "internal/heal/work", "internal/files/account", "internal/cli/doctor", "internal/lib/home", "internal/core/payload", "internal/lib/peer", "internal/lib/replace", "internal/lib/sockdiag", "internal/cli/torture", "internal/lib/typo"}},
		{"", []string{"process", "view", "gen/tend", "internal/tendpb", "internal/lib/home"}},
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
			if within(path, "face", "server") && within(dep, "driver") && !within(dep, "internal/sandbox/route") && dep != "driver" {
				t.Errorf("%s imports %s; faces know the interface of drivers alone", path, dep)
			}
		}
	}

	t.Run("only cmd reads flags and the environment", func(t *testing.T) {
		for path, p := range pkgs {
			// processtest re-executes the test binary; testbin is told which run of the tests it is in; bench and fakellm are commands.
			if within(path, "cmd", "bench", "test/fakellm", "process/processtest", "internal/support/testbin", "internal/support/testkeeper") {
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
		"internal/sandbox/drivertest/drivertest.go":         "a test",
		"internal/sandbox/drivertest/isolation.go":          "a test",
		"internal/sandbox/network/configure_linux.go": "network namespaces",
		"internal/sandbox/network/space_linux.go":     "network namespaces",
		"internal/sandbox/network/dns.go":             "the machine's resolv.conf",
		"internal/sandbox/drivertest/machine.go":            "what the machine of a test has",
		"internal/protocol/distant/journal/log.go":             "journals of sessions",
		"internal/protocol/distant/sweep.go":                   "directories of sessions",
		"internal/protocol/distant/native.go":                  "directories of sessions",
		"internal/protocol/distant/key.go":                     "the key of the transport",
		"internal/protocol/langsmith/face.go":                  "the secret behind links",
		"internal/protocol/e2bapi/store.go":                    "uploads for builds",
		"internal/protocol/gateway/face.go":                    "the gateway's directory",
		"internal/protocol/gateway/keys.go":                    "hashes of keys",
		"internal/protocol/gateway/ledger.go":                  "the log of requests",
		"internal/protocol/gateway/providers.go":               "the operator's file of providers",
		"internal/protocol/native/templates.go":                "files for builds",
		"internal/protocol/langsmith/textmap.go":               "maps of offsets",
		"internal/sandbox/host/box.go":                      "directories of sandboxes",
		"internal/sandbox/local/buildcheck.go":              "where a directory leads that a build begins with: whether the daemon's own are in it",
		"internal/sandbox/local/create.go":                  "directories of sandboxes",
		"internal/sandbox/local/life.go":                    "directories of sandboxes",
		"internal/sandbox/local/local.go":                   "directories of sandboxes",
		"internal/sandbox/local/sweep.go":                   "directories of sandboxes, and the trash",
		"internal/sandbox/local/template.go":                "records of templates",
		"internal/sandbox/local/records.go":                 "records of templates and snapshots",
		"internal/sandbox/local/base.go":                    "the files of the base template",
		"internal/sandbox/local/snapshot.go":                "records of snapshots",
		"internal/sandbox/local/disk.go":                    "disks of sandboxes",
		"internal/sandbox/image/image_linux.go":       "disks of sandboxes",
		"internal/sandbox/local/held.go":                    "directories of sandboxes, by names of the driver's own",
		"internal/sandbox/layer/count_linux.go":       "files of layers, by descriptors and without following a link",
		"internal/sandbox/local/idle.go":                    "what cgroups say of a box",
		"internal/sandbox/layer/store.go":             "directories of layers",
		"internal/sandbox/layer/sweep.go":             "directories of layers",
		"internal/sandbox/layer/copy_linux.go":        "files of layers, by descriptors and without following a link",
		"internal/sandbox/local/kernel_linux.go":            "what /proc says of a box",
		"internal/sandbox/host/user.go":                     "directories of sandboxes",
		"internal/sandbox/host/admit_linux.go":              "directories of sandboxes",
		"internal/sandbox/host/host.go":                     "directories of sandboxes",
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
