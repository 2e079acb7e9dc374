package mcp_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/protocol/mcp"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A cell that shows a picture. Its engine tells events on a descriptor that bash keeps elsewhere while a cell runs.
const shows = `for fd in /proc/$$/fd/1?; do
	[[ $(readlink "$fd") == pipe:* && -w $fd ]] &&
		printf '{"type": "result", "text": "a figure", "png": "aGk=", "extra": {}, "is_main_result": false}\n' >"$fd"
done; :`

func TestCodeRunsInTheContextOfASandbox(t *testing.T) {
	dir := t.TempDir() // kernels of this machine's bash
	python := proctest.Value(exec.LookPath("python3"))(t)
	real := proctest.Value(exec.Command(python, "-c", "import sys; print(sys.executable)").Output())(t)
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	proctest.Must(t, os.Symlink(strings.TrimSpace(string(real)), filepath.Join(dir, "bin", "python")))
	proctest.Must(t, os.Symlink(proctest.Value(filepath.Abs("../../interpreter/kernels"))(t), filepath.Join(dir, "kernels")))
	w := newWorld(t, func(c *mcp.Config) { c.Code = &interpreter.Service{Dir: dir} })
	proctest.Value(w.d.Create(t.Context(), driver.Spec{Name: "code"}))(t)
	each(t, func(t *testing.T, version string) {
		s := w.connect(version, nil)
		code := func(code string, more ...any) args {
			a := args{"code": code, "language": "bash", "sandbox": "code"}
			for i := 0; i+1 < len(more); i += 2 {
				a[more[i].(string)] = more[i+1]
			}
			return a
		}
		text, _ := ask(t, s, "run_code", code("x=kept; echo out; echo err >&2"))
		wants(t, text, "out\n", "err\n")
		text, facts := ask(t, s, "run_code", code("echo $x; (exit 3)"))
		if wants(t, text, "kept\n", "status 3"); facts["error"] != "ExitStatus" || facts["execution"] == "" {
			t.Errorf("facts are %v", facts)
		}
		text, _ = ask(t, s, "run_code", code("sleep 600", "timeout_s", 0.2))
		wants(t, text, "KeyboardInterrupt", "interrupted after 0.2 s")
		text, _ = ask(t, s, "run_code", code("seq 100000", "max_tokens", 200))
		if wants(t, text, "bytes of output are left out"); len(text) > 2000 {
			t.Errorf("200 tokens are %d bytes", len(text))
		}
		text, _ = ask(t, s, "run_code", code(":"))
		wants(t, text, "(no output)")
		res := proctest.Value(s.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_code", Arguments: code(shows)}))(t)
		if len(res.Content) != 2 || res.Content[0].(*sdk.TextContent).Text != "a figure\n" ||
			string(res.Content[1].(*sdk.ImageContent).Data) != "hi" {
			t.Errorf("a picture is %+v", res.Content)
		}
		for want, a := range map[string]args{
			"no kernel for the language":        {"code": "1", "language": "cobol", "sandbox": "code"},
			"creates one from the template":     {"code": "1"},
			"there is no sandbox":               {"code": "1", "sandbox": "nope"},
			"code has 1048577 bytes; the limit": {"code": strings.Repeat("#", 1<<20+1), "sandbox": "code"},
		} {
			if text, failed, _ := try(t, s, "run_code", a); !failed || !strings.Contains(text, want) {
				t.Errorf("want %q, got %v %q", want, failed, text)
			}
		}
	})
}
