//go:build linux

package local

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// asNobody sends bytes as nobody, and says whether a program ran.
func asNobody(request func(d *target) string) func(*testing.T, *target) string {
	return func(t *testing.T, d *target) string {
		answer := said(t, request(d), "send", "tcp", d.Addr())
		if won := d.ran(t); won != "" {
			return won + ": " + answer
		}
		return ""
	}
}

// start is a request of HTTP/1.1 that starts a program, with further lines of the header.
func (d *target) start(path string, header ...string) string {
	return asks("POST", path, starts(d.command()), append([]string{"Host: " + d.Addr(), connectJSON}, header...)...)
}

// TestAnotherUser: the port of a daemon without a token is for its user and root, and all users
// of the machine reach it.
func TestAnotherUser(t *testing.T) {
	d := attack(t, "")
	const runs = "programs as the daemon's user"
	d.run(t, []attempt{
		{"It starts a program.", runs, asNobody(func(d *target) string { return d.start(startPath) })},
		{"It starts a program over HTTP/2.", runs, func(t *testing.T, d *target) string {
			answer := said(t, starts(d.command()), "h2", d.URL+startPath, "application/connect+json")
			return admitted(answer) + d.ran(t)
		}},
		{"It asks for the page first, which is open to all, and starts a program on the same connection.", runs, asNobody(func(d *target) string {
			return "GET /ui/ HTTP/1.1\r\nHost: " + d.Addr() + "\r\n\r\n" + d.start(startPath)
		})},
		{"It hides the request in the body of one that is open to all.", runs, asNobody(func(d *target) string {
			inner := d.start(startPath)
			return fmt.Sprintf("GET /ui/ HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", d.Addr(),
				len(inner), inner)
		})},
		{"It hides the request behind a length that two readers understand differently.", runs, asNobody(func(d *target) string {
			return "GET /ui/ HTTP/1.1\r\nHost: " + d.Addr() + "\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" + d.start(startPath)
		})},
		{"It says that it comes from the owner, by headers of proxies.", runs, asNobody(func(d *target) string {
			return d.start(startPath, "X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1", "Forwarded: for=127.0.0.1", "X-Remote-User: root",
				"Remote-User: root")
		})},
		{"It begins with the line of a proxy.", runs, asNobody(func(d *target) string {
			return "PROXY TCP4 127.0.0.1 127.0.0.1 1 " + d.port + "\r\n" + d.start(startPath)
		})},
		{"It shows a token of its own, in each place, where none is needed.", runs, asNobody(func(d *target) string {
			return d.start(startPath, "Authorization: Bearer x", "X-Access-Token: x", "X-Api-Key: x", "Tend-Page: x",
				"Cookie: tend-session-"+d.port+"=x")
		})},
		{"It writes the path of what is open so that it leads elsewhere.", runs, func(t *testing.T, d *target) string {
			for _, path := range []string{"/ui/..", "/ui/%2e%2e", "/ui/..%2f", "/ui//..//", "/ui/;/..", "//ui/../", "/health/..",
				"/-/healthz/%2e%2e", "http://x/ui/.."} {
				answer := said(t, d.start(path+startPath), "send", "tcp", d.Addr())
				if won := d.ran(t); won != "" {
					return path + ": " + answer
				}
			}
			return ""
		}},
		{"It names another method than the one of the request line.", runs, func(t *testing.T, d *target) string {
			for _, method := range []string{"GET", "HEAD", "get", "PoST", "CONNECT", "TRACE", "OPTIONS", "PROPFIND"} {
				request := strings.Replace(d.start(startPath, "X-Http-Method-Override: POST", "X-Method-Override: POST"), "POST ", method+" ", 1)
				answer := said(t, request, "send", "tcp", d.Addr())
				if won := d.ran(t); won != "" || admitted(answer) != "" {
					return method + ": " + answer
				}
			}
			return ""
		}},
		{"It leaves at once, when the kernel says that root is there.", runs, func(t *testing.T, d *target) string {
			said(t, d.start(startPath), "leave", d.Addr())
			return d.ran(t)
		}},
		{"It reads what is open to all with other methods and ranges, for facts.", "facts of the daemon", func(t *testing.T, d *target) string {
			for _, path := range []string{"/-/metrics", "/-/readyz?verbose", "/envs", "/metrics", "/sandboxes", "/v2/sandboxes/boxes",
				"/ui/session", "/tend.v1.AdminService/Status?message=%7B%7D&encoding=json&connect=v1", "/files?path=/etc/hostname"} {
				answer := said(t, asks("GET", path, "", "Host: "+d.Addr(), "Range: bytes=0-", "Content-Type: application/json"), "send", "tcp",
					d.Addr())
				if won := admitted(answer); won != "" && path != "/-/readyz?verbose" {
					return path + ": " + won
				}
				if strings.Contains(answer, d.Dir()) {
					return "the state directory: " + answer
				}
			}
			return ""
		}},
		{"It listens on the daemon's port at another address, where a browser looks for localhost, too.",
			"the login, and what the owner's browser has stored for the page", func(t *testing.T, d *target) string {
				return said(t, "", "bind", d.port)
			}},
		{"It reads the token, the secret, the log and the sockets of the roles.", "what opens the daemon", func(t *testing.T, d *target) string {
			var won []string
			err := filepath.WalkDir(d.StateDir(), func(path string, e os.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return nil
				}
				line := `test -r "$1" && echo "$1 can be read"; test -w "$1" && echo "$1 can be written"; true`
				out := proctest.Value(as(t.Context(), nobody, "/bin/sh", "-c", line, "sh", path).CombinedOutput())(t)
				won = append(won, string(out))
				return nil
			})
			proctest.Must(t, err)
			return strings.Join(won, "")
		}},
		{"It looks at the roles in /proc: command line, environment, memory and descriptors.", "the environment of the daemon",
			func(t *testing.T, d *target) string {
				for role, pid := range d.Roles() {
					line := fmt.Sprintf("cat /proc/%d/environ /proc/%[1]d/mem; ls -l /proc/%[1]d/fd/; ls /proc/%[1]d/root/ /proc/%[1]d/cwd/; true", pid)
					out := proctest.Value(as(t.Context(), nobody, "/bin/sh", "-c", line).Output())(t)
					if len(out) > 0 {
						return role + ": " + string(out)
					}
				}
				return ""
			}},
		{"It sends signals to the roles, and traces them.", "the end of the daemon", func(t *testing.T, d *target) string {
			for role, pid := range d.Roles() {
				if out, err := as(t.Context(), nobody, "/bin/sh", "-c", fmt.Sprintf("kill -KILL %d", pid)).CombinedOutput(); err == nil {
					return role + ": " + string(out)
				}
			}
			return ""
		}},
	})
}

// TestAnotherUserTakesNoPlaces: who is refused anyway, or shows no token, uses up nothing that the owner
// needs.
func TestAnotherUserTakesNoPlaces(t *testing.T) {
	few := []string{"/bin/sh", "-c", `ulimit -n 512 && exec "$0" "$@"`, bin} // 256 connections
	for _, token := range []string{"", "s3cret-of-the-owner"} {
		t.Run(fmt.Sprintf("token %t", token != ""), func(t *testing.T) {
			proctest.Root(t)
			dir := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
			t.Cleanup(func() { os.RemoveAll(dir) })
			socket := filepath.Join(dir, "sock")
			flags := []string{"--socket", socket}
			if token != "" {
				file := filepath.Join(dir, "token")
				proctest.Must(t, os.WriteFile(file, []byte(token), 0o600))
				flags = append(flags, "--token-file", file)
			}
			d := watched(t, testdaemon.Config{Command: few, Dir: dir, Flags: flags}, token, "")
			d.run(t, []attempt{{"It opens all connections that there may be, and says half a header on each.", "the owner waits at the door",
				func(t *testing.T, d *target) string {
					cmd := other(t.Context(), nobody, "hold", d.Addr(), "300")
					stop := proctest.Value(cmd.StdinPipe())(t)
					out := bufio.NewReader(proctest.Value(cmd.StdoutPipe())(t))
					proctest.Must(t, cmd.Start())
					held := proctest.Value(out.ReadString('\n'))(t)
					t.Logf("it holds %s", strings.TrimSpace(held))
					defer func() {
						stop.Close()
						proctest.Must(t, cmd.Wait())
					}()
					// By the socket always; by the port where the kernel says who calls.
					urls := []string{"unix://" + socket}
					if token == "" {
						urls = append(urls, d.URL)
					}
					for _, url := range urls {
						c, err := tend.Dial(t.Context(), url, tend.Options{Token: token, Retry: tend.Retry{Attempts: 1}})
						if err != nil {
							return fmt.Sprintf("%s: %v", url, err)
						}
						c.Close()
					}
					return ""
				}}})
		})
	}
}

// TestAnotherUserOnTheSocket: its mode keeps others out, and so does the kernel's word where somebody
// has changed the mode.
func TestAnotherUserOnTheSocket(t *testing.T) {
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o755))
	marks := filepath.Join(dir, "marks")
	proctest.Must(t, os.Mkdir(marks, 0o755))
	socket := filepath.Join(dir, "sock")
	d := watched(t, testdaemon.Config{Command: []string{bin}, Dir: dir, Flags: []string{"--socket", socket}}, "", marks)
	try := func(t *testing.T, d *target) string {
		answer := said(t, d.start(startPath), "send", "unix", socket)
		return admitted(answer) + d.ran(t)
	}
	d.run(t, []attempt{
		{"It connects to the socket.", "programs as the daemon's user", try},
		{"It connects to the socket after an operator has opened its mode.", "programs as the daemon's user", func(t *testing.T,
			d *target) string {
			proctest.Must(t, os.Chmod(socket, 0o777))
			return try(t, d)
		}},
	})
}

// TestWhatAnotherUserLaysOut: files and directories that wait for root's tend.
func TestWhatAnotherUserLaysOut(t *testing.T) {
	proctest.Root(t)
	// theirs is a new directory of nobody's.
	theirs := func(t *testing.T) string {
		dir := proctest.Value(os.MkdirTemp("", "tend-theirs-"))(t)
		t.Cleanup(func() { os.RemoveAll(dir) })
		proctest.Must(t, os.Chown(dir, nobody, nobody))
		proctest.Must(t, os.Chmod(dir, 0o755))
		return dir
	}
	const secret = "s3cret-of-the-victim"
	// victim runs tend as a user, with a token in its environment, and returns what it says.
	victim := func(t *testing.T, uid uint32, env []string, args ...string) (string, error) {
		cmd := as(t.Context(), uid, "/proc/self/fd/3", args...)
		program := proctest.Value(os.Open(bin))(t)
		defer program.Close()
		cmd.ExtraFiles = []*os.File{program}
		cmd.Env = append(append(cmd.Env, "TEND_TOKEN="+secret), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// listening has nobody listen at an address, and returns what has come there by the end.
	listening := func(t *testing.T, network, address string, during func()) string {
		cmd := other(t.Context(), nobody, "receive", network, address)
		stop := proctest.Value(cmd.StdinPipe())(t)
		out := bufio.NewReader(proctest.Value(cmd.StdoutPipe())(t))
		cmd.Stderr = os.Stderr
		proctest.Must(t, cmd.Start())
		if line := proctest.Value(out.ReadString('\n'))(t); line != "listening\n" {
			t.Fatal(line)
		}
		during()
		stop.Close()
		came := proctest.Value(io.ReadAll(out))(t)
		proctest.Must(t, cmd.Wait())
		return string(came)
	}
	free := func(t *testing.T) string {
		return fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	}
	// serves starts a daemon of root's that should refuse, and says if it serves.
	serves := func(t *testing.T, flags ...string) string {
		url := filepath.Join(t.TempDir(), "url")
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--socket", "none", "--port-file", url}, flags...)
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH")}, "/"
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		proctest.Must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		won := ""
		proctest.Eventually(t, "the daemon serves or has ended", func() bool {
			if b, err := os.ReadFile(url); err == nil && len(b) > 0 {
				won = "it serves at " + string(b)
				return true
			}
			select {
			case err := <-ended:
				ended <- err
				return true
			default:
				return false
			}
		})
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		if won == "" && !strings.Contains(said.String(), "belongs to") {
			t.Errorf("it is refused for another reason: %s", said.String())
		}
		return won
	}
	d := attack(t, "")
	d.run(t, []attempt{
		{"It makes a state directory with a URL of its own, which root's commands name.", "commands, environments and the token of root",
			func(t *testing.T, _ *target) string {
				dir, at := theirs(t), free(t)
				proctest.Must(t, as(t.Context(), nobody, "/bin/sh", "-c", "echo http://"+at+" > "+dir+"/url").Run())
				return listening(t, "tcp", at, func() { t.Log(victim(t, 0, nil, "--state-dir", dir, "ps")) })
			}},
		{"It makes a state directory with a socket of its own, which root's commands name.", "commands, environments and the token of root",
			func(t *testing.T, _ *target) string {
				dir := theirs(t)
				return listening(t, "unix", filepath.Join(dir, "tend.sock"), func() { t.Log(victim(t, 0, nil, "--state-dir", dir, "ps")) })
			}},
		{"It makes a link to its own state directory, in a directory of root's that all may write.",
			"commands, environments and the token of root", func(t *testing.T, _ *target) string {
				dir, link := theirs(t), filepath.Join(proctest.Value(os.MkdirTemp("", "tend-all-"))(t), "state")
				t.Cleanup(func() { os.RemoveAll(filepath.Dir(link)) })
				proctest.Must(t, os.Chmod(filepath.Dir(link), 0o777))
				proctest.Must(t, as(t.Context(), nobody, "/bin/ln", "-s", dir, link).Run())
				return listening(t, "unix", filepath.Join(dir, "tend.sock"), func() { t.Log(victim(t, 0, nil, "--state-dir", link, "ps")) })
			}},
		{"Its runtime directory stays in the environment when a third user takes over the shell by su.",
			"commands, environments and the token of the third user", func(t *testing.T, _ *target) string {
				dir := theirs(t)
				proctest.Must(t, as(t.Context(), nobody, "/bin/mkdir", dir+"/tend").Run())
				home := proctest.Value(os.MkdirTemp("", "tend-home-"))(t)
				t.Cleanup(func() { os.RemoveAll(home) })
				proctest.Must(t, os.Chown(home, 12345, 12345))
				return listening(t, "unix", filepath.Join(dir, "tend", "tend.sock"), func() {
					t.Log(victim(t, 12345, []string{"XDG_RUNTIME_DIR=" + dir, "HOME=" + home}, "ps"))
				})
			}},
		{"It owns the directory above the state directory of root's daemon.", "the program that root's next server is", func(t *testing.T,
			_ *target) string {
			dir := filepath.Join(theirs(t), "state")
			proctest.Must(t, os.Mkdir(dir, 0o700))
			return serves(t, "--state-dir", dir)
		}},
		{"It makes the state directory a link to another one of root's.", "the daemon's files in the place of others", func(t *testing.T,
			_ *target) string {
			link := filepath.Join(theirs(t), "state")
			proctest.Must(t, os.Symlink(t.TempDir(), link))
			proctest.Must(t, os.Lchown(link, nobody, nobody))
			return serves(t, "--state-dir", link)
		}},
		{"It owns the file of the token, which has the mode 0600.", "the token", func(t *testing.T, _ *target) string {
			file := filepath.Join(theirs(t), "token")
			proctest.Must(t, os.WriteFile(file, []byte("known-to-nobody"), 0o600))
			proctest.Must(t, os.Chown(file, nobody, nobody))
			return serves(t, "--state-dir", filepath.Join(t.TempDir(), "state"), "--token-file", file)
		}},
		{"It puts a token of its own in the place of root's, in its own directory, and waits for the next server.", "the token",
			func(t *testing.T, _ *target) string {
				dir := theirs(t)
				file := filepath.Join(dir, "token")
				proctest.Must(t, os.WriteFile(file, []byte("s3cret-of-root"), 0o600))
				own := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
				t.Cleanup(func() { os.RemoveAll(own) })
				v := watched(t, testdaemon.Config{Command: []string{bin}, Dir: own, Flags: []string{"--token-file", file}}, "s3cret-of-root", "")
				proctest.Must(t, as(t.Context(), nobody, "/bin/sh", "-c", "rm -f "+file+"; umask 077; echo known-to-nobody > "+file).Run())
				before := v.Roles()[testdaemon.Server]
				proctest.Must(t, syscall.Kill(before, syscall.SIGKILL))
				// The next one refuses the token; root gives its own back, and all continues.
				proctest.Eventually(t, "the next server says why it does not start", func() bool {
					return strings.Contains(v.Log(),
						"belongs to another user")
				})
				req := proctest.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, v.URL+"/tend.v1.ProcessService/List",
					strings.NewReader("{}")))(t)
				proctest.Must(t, os.Remove(file))
				proctest.Must(t, os.WriteFile(file, []byte("s3cret-of-root"), 0o600))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer known-to-nobody")
				res := proctest.Value((&http.Transport{DisableKeepAlives: true}).RoundTrip(req))(t)
				res.Body.Close()
				proctest.Eventually(t, "the server is there again", func() bool { return v.Roles()[testdaemon.Server] > 0 })
				v.roles = v.Roles()
				v.works(t)
				if res.StatusCode == http.StatusOK {
					return "the token of nobody opens root's daemon"
				}
				return ""
			}},
	})
}
