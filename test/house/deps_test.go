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
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

const module = "github.com/tend-run/tend"

// pkg is what `go list -json` prints of one package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	Imports    []string
	Deps       []string
	GoFiles    []string
}

func list(t *testing.T, args ...string) map[string]*pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Name,Dir,Standard,Imports,Deps,GoFiles"}, args...)...)
	cmd.Stderr = os.Stderr
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
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
	proctest.Must(t, cmd.Wait())
	return pkgs
}

// ours returns the module's packages that p depends on, without the module
// path.
func ours(paths []string) (out []string) {
	for _, path := range paths {
		if rest, ok := strings.CutPrefix(path, module+"/"); ok {
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

// protocolOf is the protocol that a package belongs to; "": none, or all.
func protocolOf(path string) string {
	rest, ok := strings.CutPrefix(path, "internal/protocol/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || slices.Contains([]string{"module", "protocoltest"}, name) {
		return ""
	}
	return name
}

// TestPublicPackages names what others may import: the rest may change with each version.
func TestPublicPackages(t *testing.T) {
	var public []string
	for path, p := range list(t, "./...") {
		if len(p.GoFiles) > 0 && p.Name != "main" && !within(path, "internal", "test") {
			public = append(public, path)
		}
	}
	slices.Sort(public)
	want := []string{"gen/tend/v1", "gen/tend/v1/tendv1connect", "process", "process/processtest", "sdk/go"}
	if !slices.Equal(public, want) {
		t.Errorf("others may import %v; want %v", public, want)
	}
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
			if !within(dep, "internal/cli/role", "internal/core", "process", "internal/lib/cleansignals", "internal/lib/eintr",
				"internal/lib/errtext", "internal/lib/nap", "internal/lib/newfs", "internal/lib/overlay", "internal/lib/pidfd", "internal/lib/place", "internal/lib/procfs",
				"internal/lib/seccomp", "internal/lib/unixsock") ||
				within(dep, "internal/core/client", "internal/core/launch") {
				t.Errorf("cmd/tend-keeper depends on %s", dep)
			}
		}
	})

	// Which folder may import which. What begins a path that stands further up is decided there.
	arrows := []struct {
		from string
		to   []string
	}{
		{"process/processtest", []string{"internal/lib"}},
		{"process", nil},
		{"internal/lib/netns", []string{"internal/core/spawn"}}, // a child enters what a thread may not
		{"internal/lib", nil},
		{"internal/files", []string{"internal/lib"}},
		{"internal/view", []string{"internal/lib"}},
		{"internal/observe", []string{"internal/lib"}},
		{"internal/tendpb", []string{"gen", "internal/lib", "internal/view"}},
		{"internal/core", []string{"internal/lib", "internal/files", "internal/observe"}},
		{"internal/sandbox/drivertest", []string{"internal/files", "internal/sandbox/driver", "internal/support"}},
		{"internal/sandbox/oci/ocitest", []string{"internal/support"}},
		{"internal/sandbox", []string{"internal/core", "internal/lib", "internal/files"}},
		{"internal/service", []string{"internal/lib", "internal/files", "internal/observe", "internal/sandbox/driver"}},
		{"internal/heal", []string{"internal/lib", "internal/files", "internal/observe", "internal/service", "sdk/go"}},
		{"internal/interpreter", []string{"internal/lib", "internal/sandbox/driver"}},
		{"internal/protocol", []string{"internal/interpreter", "internal/lib", "internal/files", "internal/view", "internal/tendpb", "internal/sandbox/driver", "internal/sandbox/eventlog", "internal/sandbox/route", "gen", "internal/gen"}},
		{"internal/server", []string{"internal", "gen"}},
		{"internal/cli", []string{"internal", "sdk/go", "gen"}},
		{"internal/support", []string{"internal/core/client", "internal/lib", "sdk/go"}},
		{"internal/gen", nil},
		{"gen", nil},
		{"sdk/go", []string{"gen", "internal/lib", "internal/tendpb", "internal/view"}},
		{"cmd/tend-keeper", []string{"internal/cli/role"}},
		{"cmd/tend", []string{"internal/cli"}},
		{"bench", []string{"internal", "sdk/go", "gen"}},
		{"test", []string{"internal", "sdk/go", "gen"}},
	}
	for path, p := range pkgs {
		n := slices.IndexFunc(arrows, func(a struct {
			from string
			to   []string
		}) bool {
			return within(path, a.from)
		})
		if n < 0 {
			t.Errorf("package %s has no place in the arrows: give its folder one here and in ARCHITECTURE.md", path)
			continue
		}
		for _, dep := range ours(p.Imports) {
			if !within(dep, arrows[n].to...) && !within(dep, arrows[n].from, "process") {
				t.Errorf("%s imports %s; %s may import only itself, process and %v", path, dep, arrows[n].from, arrows[n].to)
			}
			if one, other := protocolOf(path), protocolOf(dep); one != "" && other != "" && one != other {
				t.Errorf("%s imports %s; no protocol knows another", path, dep)
			}
		}
	}

	t.Run("only the command line reads flags and the environment", func(t *testing.T) {
		for path, p := range pkgs {
			// processtest re-executes the test binary; testbin is told which run of the tests it is in; bench, mirror and fakellm are commands.
			if within(path, "internal/cli", "cmd", "bench", "test/conformance/mirror", "test/fakellm", "process/processtest",
				"internal/support/testbin", "internal/support/testkeeper") {
				continue
			}
			for _, file := range p.GoFiles {
				if path == "sdk/go" && file == "default.go" {
					continue // DialDefault finds the daemon as the command line does
				}
				b := proctest.Value(os.ReadFile(filepath.Join(p.Dir, file)))(t)
				for _, word := range []string{"os.Getenv(", "os.LookupEnv(", "os.Environ(", "\"flag\"\n"} {
					if strings.Contains(string(b), word) {
						t.Errorf("%s/%s uses %s", path, file, strings.TrimSpace(word))
					}
				}
			}
		}
	})

	// TestABeginningIsLight of internal/cli measures what a start costs, whatever the cause.
	t.Run("tend is linked from no package that compiles a regular expression before main", func(t *testing.T) {
		for _, path := range append(ours(pkgs["cmd/tend"].Deps), "cmd/tend") {
			p := pkgs[path]
			for _, file := range p.GoFiles {
				parsed := proctest.Value(parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0))(t)
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
		for _, dep := range pkgs["sdk/go"].Deps {
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
		"internal/sandbox/drivertest/drivertest.go":     "a test",
		"internal/sandbox/drivertest/isolation.go":      "a test",
		"internal/sandbox/network/configure_linux.go":   "network namespaces",
		"internal/sandbox/network/space_linux.go":       "network namespaces",
		"internal/sandbox/network/dns.go":               "the machine's resolv.conf",
		"internal/sandbox/drivertest/lacks.go":          "what the machine of a test has",
		"internal/protocol/distant/journal/log.go":      "journals of sessions",
		"internal/protocol/distant/sweep.go":            "directories of sessions",
		"internal/protocol/distant/native.go":           "directories of sessions",
		"internal/protocol/distant/key.go":              "the key of the transport",
		"internal/protocol/langsmith/face.go":           "the secret behind links",
		"internal/protocol/e2bapi/store.go":             "uploads for builds",
		"internal/protocol/gateway/face.go":             "the gateway's directory",
		"internal/protocol/gateway/keys.go":             "hashes of keys",
		"internal/protocol/gateway/ledger.go":           "the log of requests",
		"internal/protocol/gateway/providers.go":        "the operator's file of providers",
		"internal/protocol/native/templates.go":         "files for builds",
		"internal/protocol/langsmith/textmap.go":        "maps of offsets",
		"internal/sandbox/host/box.go":                  "directories of sandboxes",
		"internal/sandbox/local/buildcheck.go":          "where a directory leads that a build begins with: whether the daemon's own are in it",
		"internal/sandbox/local/buildcache.go":          "caches of builds, and their secrets in memory",
		"internal/sandbox/local/dockerfetch.go":         "files that are being fetched for a build",
		"internal/sandbox/local/dockerfile.go":          "the directory of a build",
		"internal/sandbox/local/dockerrun.go":           "the directory of a build, and secrets in memory",
		"internal/sandbox/local/create.go":              "directories of sandboxes",
		"internal/sandbox/local/ids.go":                 "files that name ids of the machine's accounts",
		"internal/sandbox/local/life.go":                "directories of sandboxes",
		"internal/sandbox/local/local.go":               "directories of sandboxes",
		"internal/sandbox/local/sweep.go":               "directories of sandboxes, and the trash",
		"internal/sandbox/local/template.go":            "records of templates",
		"internal/sandbox/local/records.go":             "records of templates and snapshots",
		"internal/sandbox/eventlog/eventlog.go":         "the log of events",
		"internal/sandbox/local/volumes.go":             "records of volumes, and their directories",
		"internal/sandbox/volume/volume.go":             "the directory of a volume, which has no user: os.Root keeps paths in it",
		"internal/sandbox/local/base.go":                "the files of the base template",
		"internal/sandbox/local/snapshot.go":            "records of snapshots",
		"internal/sandbox/local/disk.go":                "disks of sandboxes",
		"internal/sandbox/image/image_linux.go":         "disks of sandboxes",
		"internal/sandbox/local/held.go":                "directories of sandboxes, by names of the driver's own",
		"internal/sandbox/layer/count_linux.go":         "files of layers, by descriptors and without following a link",
		"internal/sandbox/local/idle.go":                "what cgroups say of a box",
		"internal/sandbox/layer/store.go":               "directories of layers",
		"internal/sandbox/layer/sweep.go":               "directories of layers",
		"internal/sandbox/layer/copy_linux.go":          "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/registry/tls.go":          "certificates of registries",
		"internal/sandbox/oci/registry/fetch.go":        "layers that are being fetched",
		"internal/sandbox/oci/store.go":                 "records of images",
		"internal/sandbox/oci/add.go":                   "archives that are being read",
		"internal/sandbox/oci/unpack/unpack_linux.go":   "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/look_linux.go":     "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/tar_linux.go":      "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/kinds_linux.go":    "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/describe_linux.go": "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/tree_linux.go":     "files of layers, by descriptors and without following a link",
		"internal/sandbox/oci/unpack/view_linux.go":     "files of layers, by descriptors and without following a link",
		"internal/sandbox/local/images.go":              "an archive that is being read",
		"internal/sandbox/oci/ocitest/programs.go":      "a test",
		"internal/sandbox/local/kernel_linux.go":        "what /proc says of a box",
		"internal/sandbox/local/changes.go":             "what a sandbox has written, without following a link",
		"internal/sandbox/host/user.go":                 "directories of sandboxes",
		"internal/sandbox/host/admit_linux.go":          "directories of sandboxes",
		"internal/sandbox/host/host.go":                 "directories of sandboxes",
	}
	touches := regexp.MustCompile(`\b(os\.(Open|OpenFile|OpenRoot|OpenInRoot|Create|CreateTemp|Stat|Lstat|ReadDir|ReadFile|WriteFile|Readlink|Mkdir|MkdirAll|MkdirTemp|Remove|RemoveAll|Rename|Symlink|Link|Chmod|Chown|Lchown|Chtimes|Truncate|DirFS|CopyFS)|filepath\.(EvalSymlinks|Walk|WalkDir|Glob)|doublestar\.(Glob|GlobWalk|FilepathGlob)|(unix|syscall)\.(Open|Openat|Openat2|Creat|Stat|Lstat|Fstatat|Statx|Access|Unlink|Rename|Mkdir|Chmod|Chown|Truncate|Symlink|Link|Listxattr|Getxattr|Setxattr|Mknod|InotifyAddWatch))\(`)
	for path, p := range list(t, "./internal/protocol/...", "./internal/sandbox/...") {
		for _, name := range p.GoFiles {
			file := path + "/" + name
			b := proctest.Value(os.ReadFile(filepath.Join(p.Dir, name)))(t)
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
