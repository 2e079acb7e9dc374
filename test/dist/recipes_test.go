//go:build linux

package dist

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

const secret = "a-token-of-the-tests"

// recipe is a section of docs/install.md: its first block of code, and all of its text.
func recipe(t *testing.T, title string) (code, text string) {
	t.Helper()
	doc := string(proctest.Value(os.ReadFile("../../docs/install.md"))(t))
	_, text, ok := strings.Cut(doc, "\n### "+title+"\n")
	text, _, _ = strings.Cut(text, "\n### ")
	_, code, found := strings.Cut(text, "\n```")
	_, code, _ = strings.Cut(code, "\n")
	code, _, _ = strings.Cut(code, "\n```")
	if !ok || !found {
		t.Fatalf("docs/install.md has no recipe %q with code", title)
	}
	return code, text
}

// words are the JSON array at the end of the line that begins so.
func words(t *testing.T, code, beginning string) (all []string) {
	t.Helper()
	for line := range strings.Lines(code) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), beginning); ok {
			proctest.Must(t, json.Unmarshal([]byte(strings.TrimSpace(rest)), &all))
			return all
		}
	}
	t.Fatalf("no line of the recipe begins with %s:\n%s", beginning, code)
	return nil
}

// place is a container of its own: the machine's files below an overlay, with these files
// besides, and a network that has loopback alone. Its first process is the command.
func place(t *testing.T, program string, at string, files map[string]string, command ...string) *root {
	t.Helper()
	// What is put there is copied before the command begins.
	dir := t.TempDir()
	script := strings.Replace(overlay, "mount --rbind /dev dev\n", "cp -a \"$1/put/.\" .\nmount --rbind /dev dev\n", 1)
	script = strings.Replace(script, "mount -t tmpfs tmpfs \"$1\"\n", "mount -t tmpfs tmpfs \"$1\"\ncp -a \"$2\" \"$1/put\"\n", 1)
	script = strings.Replace(script, "shift\n", "shift 2\n", 1)
	put := filepath.Join(dir, "put")
	proctest.Must(t, os.MkdirAll(filepath.Join(put, filepath.Dir(at)), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(put, at), proctest.Value(os.ReadFile(program))(t), 0o755))
	for name, text := range files {
		proctest.Must(t, os.MkdirAll(filepath.Join(put, filepath.Dir(name)), 0o755))
		mode := os.FileMode(0o400)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		proctest.Must(t, os.WriteFile(filepath.Join(put, name), []byte(text), mode))
	}
	over := filepath.Join(dir, "over")
	proctest.Must(t, os.Mkdir(over, 0o755))
	t.Setenv("PATH", "/usr/local/bin:"+os.Getenv("PATH"))
	r := enterWith(t, []string{"--net"}, script, append([]string{over, put}, command...)...)
	r.searched = os.Getenv("PATH")
	loopback(t, r)
	return r
}

// loopback brings the interface lo of a root up, by a thread that enters its network and
// ends there.
func loopback(t *testing.T, r *root) {
	t.Helper()
	ns := proctest.Value(os.Open(r.proc0("ns/net")))(t)
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread is of another network
		done <- func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			lo, err := unix.NewIfreq("lo")
			if err != nil {
				return err
			}
			lo.SetUint16(unix.IFF_UP)
			return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
		}()
	}()
	proctest.Must(t, <-done)
}

// serves waits until the daemon of a place answers at an address, which the token opens and
// nothing else does.
func (r *root) serves(tend, url string) {
	r.t.Helper()
	proctest.Eventually(r.t, "the daemon serves "+url, func() bool {
		_, err := r.try("env", "TEND_TOKEN="+secret, tend, "--url", url, "status")
		return err == nil
	})
	if out, err := r.try(tend, "--url", url, "status"); err == nil || !strings.Contains(out, "token") {
		r.t.Errorf("without the token: %v, %s", err, out)
	}
	if out := r.run("env", "TEND_TOKEN="+secret, tend, "--url", url, "run", "--", "echo", "it", "runs"); out != "it runs\n" {
		r.t.Errorf("a program says %q", out)
	}
}

// recipesWork follows docs/install.md, as far as this machine can be what it is about: a
// container, a template of E2B, a pod and a small virtual machine are roots here.
func recipesWork(t *testing.T, program string) {
	t.Run("Dockerfile", func(t *testing.T) {
		code, _ := recipe(t, "Dockerfile")
		lines := strings.Split(code, "\n")
		copied := regexp.MustCompile(`^COPY --from=tend:VERSION /usr/bin/tend (/\S+)$`).FindStringSubmatch(lines[0])
		if len(lines) != 3 || copied == nil {
			t.Fatalf("three lines are promised, of which the first copies the program:\n%s", code)
		}
		r := place(t, program, copied[1], map[string]string{"run/secrets/tend": secret}, words(t, code, "ENTRYPOINT ")...)
		health := words(t, code, "HEALTHCHECK CMD ")
		proctest.Eventually(t, "the container is healthy", func() bool {
			_, err := r.try(health...)
			return err == nil
		})
		r.serves("tend", "http://127.0.0.1:49983")
		r.run("sh", "-c", "(sleep 0.1 &) ; :") // an orphan of nobody's
		proctest.Eventually(t, "the first process collects orphans", func() bool {
			out, _ := r.try("sh", "-c", "cat /proc/[0-9]*/status 2>/dev/null")
			return !strings.Contains(out, "State:\tZ") && !strings.Contains(out, "Name:\tsleep\n")
		})
		r.run("tend", "run", "-d", "--name", "works", "--", "sh", "-c", `trap "echo done >/ended; exit" TERM; echo on; while :; do sleep 0.1; done`)
		r.run("tend", "wait", "works", "--until", "match=on")
		held := proctest.Value(os.Open(r.path("/")))(t) // the files are there for as long as somebody has them
		defer held.Close()
		proctest.Must(t, syscall.Kill(r.pid, syscall.SIGTERM))
		proctest.Eventually(t, "the container ends", func() bool { return syscall.Kill(r.pid, 0) != nil || !r.has("/") })
		fd, err := unix.Openat(int(held.Fd()), "ended", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("what ran was not ended in good order: %v", err)
		}
		unix.Close(fd)
	})
	t.Run("E2B template", func(t *testing.T) {
		code, text := recipe(t, "E2B template")
		copied := regexp.MustCompile(`^COPY tend (/\S+)$`).FindStringSubmatch(code)
		start := regexp.MustCompile("start command `([^`]+)`").FindStringSubmatch(text)
		if copied == nil || start == nil {
			t.Fatalf("what is to be done is not understood:\n%s", text)
		}
		r := place(t, program, copied[1], nil, strings.Fields(start[1])...)
		proctest.Eventually(t, "a program calls tend run", func() bool {
			out, err := r.try("tend", "run", "--", "echo", "it", "runs")
			return err == nil && out == "it runs\n"
		})
	})
	t.Run("Kubernetes", func(t *testing.T) {
		code, _ := recipe(t, "Kubernetes")
		command := words(t, code, "command: ")
		ready := regexp.MustCompile(`readinessProbe: \{httpGet: \{path: (\S+), port: (\d+)\}\}`).FindStringSubmatch(code)
		if ready == nil {
			t.Fatalf("there is no readinessProbe:\n%s", code)
		}
		// The image is mounted at /tend, the secret at /token, and /state is empty.
		r := place(t, program, command[0], map[string]string{"token/token": secret, "state/.empty": ""}, command...)
		probe := `exec 3<>/dev/tcp/127.0.0.1/` + ready[2] + ` && printf 'GET ` + ready[1] + ` HTTP/1.0\r\n\r\n' >&3 && head -1 <&3`
		proctest.Eventually(t, "the pod is ready", func() bool {
			out, err := r.try("bash", "-c", probe)
			return err == nil && strings.Contains(out, " 200 ")
		})
		r.serves(command[0], "http://127.0.0.1:"+ready[2])
		if !r.has("/state/output") && !r.has("/state/url") {
			t.Error("the state is not in the volume")
		}
	})
	t.Run("Firecracker", func(t *testing.T) {
		code, _ := recipe(t, "Firecracker")
		r := place(t, program, "usr/bin/tend", map[string]string{"init": code, "etc/tend.token": secret}, "/init")
		r.serves("/usr/bin/tend", "http://127.0.0.1:49983")
		for _, kind := range []string{"/proc proc", "/sys sysfs", "/dev devtmpfs", "/sys/fs/cgroup cgroup2"} { // the kernel may have /dev already, as here
			if out := r.run("cat", "/proc/mounts"); !strings.Contains(out, " "+kind+" ") {
				t.Errorf("%s is not mounted: %s", kind, out)
			}
		}
	})
}
