package work

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestOnlyWhatIsOursByDescentIsEnded: a program that a person has started is not, though it is
// the service's, in its directory. It is, if the configuration says so.
func TestOnlyWhatIsOursByDescentIsEnded(t *testing.T) {
	g := newGround(t, 0)
	g.w.order.Service = "web"
	port := proctest.FreePort(t)
	argv := []string{"python3", "-m", "http.server", "--bind", "127.0.0.1", fmt.Sprint(port)}
	g.w.order.Rules.Command.Argv = argv
	answers := func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	end := func(kind playbook.Kind) (string, error) {
		return g.w.carry(t.Context(), 1, playbook.Action{Kind: kind, Port: port})
	}
	// What an earlier run has left.
	run := proctest.Value(g.w.there.Start(t.Context(), process.Spec{
		Argv:   append([]string{"sh", "-c", `setsid "$@" < /dev/null > /dev/null 2>&1 & sleep 1000`, "sh"}, argv...),
		Dir:    g.root,
		Labels: map[string]string{process.LabelService: "web"},
	}))(t)
	proctest.Eventually(t, "what is left listens", answers)
	if said, err := end(playbook.EndPortHolder); err == nil || !strings.Contains(err.Error(), "a process of this daemon") || !answers() {
		t.Fatalf("while its run goes on: %q, %v", said, err)
	}
	proctest.Must(t, run.Signal(t.Context(), int(syscall.SIGKILL), process.ScopeGroup))
	proctest.Value(run.Wait(t.Context(), process.Until{}))(t)
	if said, err := end(playbook.EndPortHolder); err != nil || !strings.Contains(said, "ended what was left of earlier runs") || answers() {
		t.Fatalf("after it: %q, %v", said, err)
	}
	// What a person has started.
	cmd := exec.Command("sh", append([]string{"-c", `"$@" < /dev/null > /dev/null 2>&1 & echo $!`, "sh"}, argv...)...)
	cmd.Dir = g.root
	pid := proctest.Value(strconv.Atoi(strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))))(t)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	proctest.Eventually(t, "the person's listens", answers)
	if said, err := end(playbook.EndOrphans); err != nil || said != "" || !answers() {
		t.Fatalf("ending orphans: %q, %v", said, err)
	}
	held := fmt.Sprintf("held by pid %d (python3)", pid)
	if said, err := end(playbook.EndPortHolder); err == nil || !strings.Contains(err.Error(), held) || !answers() {
		t.Fatalf("ending the holder: %q, %v", said, err)
	}
	g.w.order.Healer.EndOthers = true
	if said, err := end(playbook.EndPortHolder); err != nil || !strings.Contains(said, "which held port") {
		t.Fatalf("where the configuration says so: %q, %v", said, err)
	}
	if answers() {
		t.Error("it still listens")
	}
}
