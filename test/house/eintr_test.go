package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestCallsThatASignalMayInterruptAreRepeated finds calls of x/sys that the kernel does not
// begin again after a signal, or that may take a part of what they are given, and that
// neither internal/lib/eintr repeats nor their function looks for EINTR.
func TestCallsThatASignalMayInterruptAreRepeated(t *testing.T) {
	interruptible := map[string]bool{}
	for name := range strings.FieldsSeq("Accept Accept4 Connect CopyFileRange EpollWait Fallocate Fdatasync Fsync Openat2 Poll Ppoll Pwrite Read Recvfrom Recvmsg Select Sendfile SendmsgN Sendto Splice Write") {
		interruptible[name] = true
	}
	// Where EINTR does not come, or does no harm.
	const eventfd, noWait, early, proc = "an eventfd has room", "it does not wait", "the wait may end early", "the kernel has it at once"
	right := map[string]string{
		"internal/cli/system_unix.go Read Poll":                    early,
		"internal/core/anchor/vault.go rest Poll":                  early,
		"internal/core/anchor/vault.go rest Read":                  noWait,
		"internal/sandbox/network/space_linux.go connect Connect":  noWait,
		"internal/sandbox/network/space_linux.go udp Connect":      noWait,
		"internal/protocol/envd/watch_linux.go stop Write":         eventfd,
		"internal/lib/procfs/procfs_linux.go ReadStat Read":        proc,
		"internal/lib/sockdiag/conn_linux.go receive Recvfrom":     noWait,
		"internal/core/contain/container.go comm Read":             proc,
		"internal/core/cgroup/cgroup.go waitEmpty Poll":            early,
		"internal/core/client/wake.go stop Write":                  eventfd,
		"internal/core/stdin/stdin.go Abandoned Poll":              early,
		"internal/core/keeper/keeper.go announce Write":            eventfd,
		"internal/core/keeper/probe.go probeFilesystem Write":      "the pipe has room",
		"internal/core/keeper/takeover.go takeOver Write":          eventfd,
		"internal/core/fdstore/client.go Hurry Write":              eventfd,
		"internal/core/fdstore/client.go catchUp Poll":             early,
		"internal/service/sockets/hold_linux.go abandoned Connect": noWait,
	}
	seen := map[string]bool{}
	proctest.Must(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "node_modules" ||
			within(path, "test", "bench", "examples", "tools", "internal/lib/eintr", "internal/lib/kernelfault")) {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file := proctest.Value(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution))(t)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || mentions(f, "EINTR") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				of, name := selected(call.Fun)
				if of == "eintr" {
					return false
				}
				if (of == "unix" || of == "syscall") && interruptible[name] {
					what := path + " " + f.Name.Name + " " + name
					if seen[what] = true; right[what] == "" {
						t.Errorf("%s: a signal may interrupt it: use internal/lib/eintr, or say in the table of this test why that is right", what)
					}
				}
				return true
			})
		}
		return nil
	}))
	for what := range right {
		if !seen[what] {
			t.Errorf("%s is not there any more", what)
		}
	}
}

// selected returns the names of a call such as unix.Read.
func selected(fun ast.Expr) (of, name string) {
	if sel, ok := fun.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name, sel.Sel.Name
		}
	}
	return "", ""
}

func mentions(f *ast.FuncDecl, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			found = true
		}
		return !found
	})
	return found
}
