//go:build linux

package raw

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// isolated is a sandbox whose files are asked for by raw HTTP.
type isolated struct {
	*tend.Sandbox
	t  *testing.T
	d  *daemon
	id string
}

// newIsolated makes one like those of E2B's clients: commands run as user.
func newIsolated(t *testing.T, change func(*tend.SandboxSpec)) isolated {
	t.Helper()
	return shared.isolated(t, change)
}

func (d *daemon) isolated(t *testing.T, change func(*tend.SandboxSpec)) isolated {
	t.Helper()
	spec := tend.SandboxSpec{Isolation: tend.IsolationFull, Template: "base", User: "user"}
	if change != nil {
		change(&spec)
	}
	s := proctest.Value(d.Connect(t).CreateSandbox(t.Context(), spec))(t)
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return isolated{s, t, d, proctest.Value(s.Info(t.Context()))(t).ID}
}

func (s isolated) ask(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	return s.d.Ask(s.t, method, path, body, append(header, "E2b-Sandbox-Id", s.id)...)
}

// owners makes a request that writes files, and returns its status and the owners that the
// answer names.
func (s isolated) owners(path, body string, header ...string) string {
	s.t.Helper()
	res, _ := s.d.Answer(s.t, "POST", path, body, append(header, "E2b-Sandbox-Id", s.id)...)
	return fmt.Sprint(res.StatusCode, res.Header.Values("Tend-Owner"))
}

func (s isolated) upload(path, body string) (int, string) {
	s.t.Helper()
	return s.ask("POST", "/files?path="+url.QueryEscape(path), body, "Content-Type", "application/octet-stream")
}

// call calls the filesystem service. The answer is as short as the question was.
func (s isolated) call(method, body string, header ...string) string {
	s.t.Helper()
	status, text := s.ask("POST", "/filesystem.Filesystem/"+method, body, append(header, "Content-Type", "application/json")...)
	var said struct {
		Code, Message string
		Entry         struct {
			Path, Type, Permissions, Owner, Group string
		}
	}
	proctest.Must(s.t, json.Unmarshal([]byte(text), &said))
	switch {
	case status != 200:
		return said.Code + ": " + said.Message
	case said.Entry.Path == "":
		return text
	}
	return strings.Join([]string{said.Entry.Path, said.Entry.Permissions, said.Entry.Owner, said.Entry.Group}, " ")
}

// inside runs a line as root and returns what it printed.
func (s isolated) inside(line string) string {
	s.t.Helper()
	cmd := tend.Shell(line)
	cmd.User = "root"
	res := proctest.Value(s.Processes().Run(s.t.Context(), cmd))(s.t)
	if res.Stderr != "" {
		s.t.Errorf("%s: %s", line, res.Stderr)
	}
	return strings.TrimSpace(res.Stdout)
}

// TestFilesOfASandboxAreRoots: each call does what root of the sandbox may do, and what
// appears is the user's.
func TestFilesOfASandboxAreRoots(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	s := newIsolated(t, nil)
	s.inside(`umask 077; mkdir -p /srv/closed/in; echo secret > /srv/closed/f; echo one > /srv/closed/p1; echo two > /srv/closed/p2; echo old > /srv/mine; mkdir /srv/held; ln -s loop /srv/loop; mkfifo /srv/fifo; ln -s /opt/target /srv/dangling; ln -s /proc/1/cwd/etc /srv/magic`)
	for _, c := range []struct {
		name, path, body string
		code             int
		want             string // of the answer
		stat             string // path: owner and mode
	}{
		{"a new file below new directories", "/app/a/b.txt", "x", 200, `[{"name":"b.txt","path":"/app/a/b.txt","type":"file"}]`, "/app user:user 755, /app/a user:user 755, /app/a/b.txt user:user 644"},
		{"in a directory of root's", "/srv/closed/new", "x", 200, `"/srv/closed/new"`, "/srv/closed root:root 700, /srv/closed/new user:user 644"},
		{"over a file of root's", "/srv/mine", "new", 200, `"/srv/mine"`, "/srv/mine user:user 600"},
		{"over a file of the machine's", "/etc/issue", "new", 200, `"/etc/issue"`, "/etc root:root 755, /etc/issue user:user 644"},
		{"by a link to what is missing", "/srv/dangling", "x", 200, `"/srv/dangling"`, "/opt/target user:user 644"},
		{"a directory", "/srv/held", "x", 400, `path is a directory: /srv/held`, "/srv/held root:root 700"},
		{"below a file", "/srv/mine/x/y", "x", 500, `error ensuring directories: path is a file: /srv/mine"`, "/srv/mine user:user 600"},
		{"a FIFO", "/srv/fifo", "x", 400, `path is not a regular file: /srv/fifo`, "/srv/fifo root:root 600"},
		{"a device", "/dev/null", "x", 400, `path is not a regular file: /dev/null`, ""},
		{"a setting of the kernel", "/proc/sys/kernel/domainname", "x", 403, "permission denied", ""},
		{"a magic link", "/srv/magic/passwd", "x", 403, "permission denied", "/etc/passwd root:root 644"},
		{"out of the root", "/../../../../etc/new", "x", 200, `"/etc/new"`, "/etc/new user:user 644"},
	} {
		status, text := s.upload(c.path, c.body)
		var got []string
		for at := range strings.SplitSeq(c.stat, ", ") {
			if path, _, _ := strings.Cut(at, " "); path != "" {
				got = append(got, path+" "+s.inside("stat -c '%U:%G %a' "+path))
			}
		}
		if status != c.code || !strings.Contains(text, c.want) || strings.Join(got, ", ") != c.stat {
			t.Errorf("an upload: %s: %d %s; %s; want %d %s; %s", c.name, status, text, got, c.code, c.want, c.stat)
		}
	}
	for path, want := range map[string]string{"/srv/closed/f": "200 secret\n", "/srv/nothing": `404 {"code":404,"message":"path '/srv/nothing' does not exist"}` + "\n", "/srv/held": `400 {"code":400,"message":"path '/srv/held' is a directory"}` + "\n"} {
		if status, text := s.ask("GET", "/files?path="+path, ""); fmt.Sprint(status, " ", text) != want {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	for _, path := range []string{"/proc/1/root/etc/passwd", "/srv/magic/passwd", "/proc/1/environ", "/proc/1/mem"} {
		if status, text := s.ask("GET", "/files?path="+path, ""); status < 400 {
			t.Errorf("GET %s: %d %q", path, status, text)
		}
	}
	status, text := s.ask("POST", "/files/compose", `{"source_paths":["/srv/closed/p1","/srv/closed/p2"],"destination":"/whole/of/it"}`)
	if got := s.inside("stat -c '%U:%G %a' /whole /whole/of/it; cat /whole/of/it; ls /srv/closed"); status != 200 || got != "user:user 755\nuser:user 644\none\ntwo\nf\nin\nnew" {
		t.Errorf("compose: %d %s, %q", status, text, got)
	}
	for body, want := range map[string]string{
		`{"source_paths":[],"destination":"/x"}`:                    `400 {"code":400,"message":"source_paths must not be empty"}`,
		`{"source_paths":["/srv/closed/no"],"destination":"/x"}`:    `404 {"code":404,"message":"source file not found: /srv/closed/no"}`,
		`{"source_paths":["/srv/mine/no"],"destination":"/x"}`:      `404 {"code":404,"message":"source file not found: /srv/mine/no"}`,
		`{"source_paths":["/srv/held"],"destination":"/x"}`:         `400 {"code":400,"message":"source path is not a regular file: /srv/held"}`,
		`{"source_paths":["/srv/mine"],"destination":"/etc/new/x"}`: `500 {"code":500,"message":"error ensuring directories: path is a file: /etc/new"}`,
	} {
		if status, text := s.ask("POST", "/files/compose", body); fmt.Sprint(status, " ", strings.TrimSpace(text)) != want {
			t.Errorf("compose %s: %d %s; want %s", body, status, text, want)
		}
	}
	for _, c := range [][3]string{
		{"MakeDir", `{"path":"/workspace"}`, "/workspace drwxr-xr-x user user"},
		{"MakeDir", `{"path":"/workspace"}`, "already_exists: directory already exists: /workspace"},
		{"MakeDir", `{"path":"/srv/closed/a/b"}`, "/srv/closed/a/b drwxr-xr-x user user"},
		{"MakeDir", `{"path":"/srv/mine"}`, "invalid_argument: path already exists but it is not a directory: /srv/mine"},
		{"MakeDir", `{"path":"/srv/mine/a/b"}`, "internal: path is a file: /srv/mine"},
		{"Stat", `{"path":"/srv/closed/a"}`, "/srv/closed/a drwxr-xr-x user user"},
		{"Stat", `{"path":"/srv/closed/f"}`, "/srv/closed/f -rw------- root root"},
		{"Move", `{"source":"/srv/closed/in","destination":"/workspace/x/y"}`, "/workspace/x/y drwx------ root root"},
		{"Stat", `{"path":"/workspace/x"}`, "/workspace/x drwxr-xr-x user user"},
		{"Move", `{"source":"/srv/closed/no","destination":"/workspace/z"}`, "not_found: source file not found: move /srv/closed/no: no such file or directory"},
		{"Move", `{"source":"/workspace","destination":"/dev/shm/w"}`, "internal: error renaming: move /workspace: invalid cross-device link"},
		{"Move", `{"source":"/srv/held","destination":"/srv/closed"}`, "internal: error renaming: move /srv/held: file exists"},
		{"Remove", `{"path":"/workspace/x/y"}`, "{}"},
		{"Remove", `{"path":"/workspace/x/y"}`, "{}"},
		{"Remove", `{"path":"/srv/closed"}`, "{}"},
		{"Remove", `{"path":"/proc"}`, "internal: error removing file or directory: remove /proc: device or resource busy"},
		{"ListDir", `{"path":"/srv/held"}`, "{}"},
		{"ListDir", `{"path":"/srv/closed"}`, "not_found: path not found: list /srv/closed: no such file or directory"},
		{"ListDir", `{"path":"/srv/loop"}`, `failed_precondition: cyclic symlink or chain >255 links at "/srv/loop"`},
		{"ListDir", `{"path":"/srv/mine"}`, "invalid_argument: path is not a directory: /srv/mine"},
		{"CreateWatcher", `{"path":"/srv/mine"}`, "invalid_argument: path /srv/mine not a directory"},
		{"CreateWatcher", `{"path":"/srv/no"}`, "not_found: path /srv/no not found: watch /srv/no: no such file or directory"},
		{"CreateWatcher", `{"path":"/srv/magic"}`, "permission_denied: watch /srv/magic: permission denied"},
	} {
		if got := s.call(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s: %s; want %s", c[0], c[1], got, c[2])
		}
	}
	var watcher struct{ WatcherID string }
	proctest.Must(t, json.Unmarshal([]byte(s.call("CreateWatcher", `{"path":"/srv/held","recursive":true}`)), &watcher))
	s.inside("touch /srv/held/seen")
	proctest.Eventually(t, "an event of a directory of root's", func() bool {
		return strings.Contains(s.call("GetWatcherEvents", fmt.Sprintf(`{"watcherId":%q}`, watcher.WatcherID)), `"seen"`)
	})

	// Whoever is named decides the owner and the home, and not what is allowed.
	s.inside("useradd --create-home other; chmod 700 /home/other")
	if status, text := s.ask("POST", "/files?username=other&path=/srv/others/f", "x", "Content-Type", "application/octet-stream"); status != 200 || s.inside("stat -c '%U' /srv/others /srv/others/f") != "other\nother" {
		t.Errorf("for another user: %d %s", status, text)
	}
	other := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("other:"))}
	if got := s.call("MakeDir", `{"path":"a"}`, other...); got != "/home/other/a drwxr-xr-x other other" {
		t.Errorf("in another user's home: %s", got)
	}
	if status, text := s.upload("/home/other/a/f", "x"); status != 200 || s.inside("stat -c '%U' /home/other/a/f") != "user" {
		t.Errorf("in another user's directory: %d %s", status, text)
	}
	if status, text := s.ask("GET", "/files?username=nobody-here&path=/srv", ""); status != 401 || !strings.Contains(text, "error looking up user 'nobody-here'") {
		t.Errorf("an unknown user: %d %s", status, text)
	}
	unknown := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("nobody-here:"))}
	for _, method := range []string{"Stat", "MakeDir", "Move", "ListDir", "Remove", "CreateWatcher"} {
		if got := s.call(method, `{"path":"/srv"}`, unknown...); got != "unauthenticated: invalid username: 'nobody-here'" {
			t.Errorf("%s for an unknown user: %s", method, got)
		}
	}
}

// TestMagicLinksOfASandboxLeadNowhere: links of /proc to a directory of a program, which no call
// follows. A daemon of root may not read them for the sandbox's user. An ordinary user's owns
// the sandbox's namespace, and may.
func TestMagicLinksOfASandboxLeadNowhere(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	d, _ := ordinary(t)
	for who, d := range map[string]*daemon{"root's daemon": shared, "an ordinary user's": d} {
		t.Run(who, func(t *testing.T) { magicLinksLeadNowhere(t, d.isolated(t, nil)) })
	}
}

func magicLinksLeadNowhere(t *testing.T, s isolated) {
	s.inside("echo kept > /srv/kept; mkdir -m 777 /srv/there; echo there > /srv/there/f; chmod 666 /srv/there/f; " +
		"ln -s /proc/1/cwd/srv/there /srv/first")
	line := tend.Shell("cd /srv/there; ln -s /proc/$$/cwd magic; cat magic/f > seen; exec sleep 600")
	p := proctest.Value(s.Processes().Spawn(t.Context(), line))(t)
	defer p.Close()
	proctest.Eventually(t, "a link that its user may follow", func() bool {
		return s.inside("cat /srv/there/seen 2>/dev/null || true") == "there"
	})
	s.inside("mv /srv/there/magic /srv/users; rm /srv/there/seen")
	for _, magic := range []string{"/srv/first", "/srv/users"} {
		for _, c := range [][2]string{
			{"Stat", `{"path":"MAGIC/f"}`}, {"Stat", `{"path":"MAGIC/none"}`}, {"ListDir", `{"path":"MAGIC"}`},
			{"ListDir", `{"path":"MAGIC/."}`}, {"CreateWatcher", `{"path":"MAGIC"}`},
			{"Remove", `{"path":"MAGIC/f"}`}, {"Remove", `{"path":"MAGIC/none"}`},
			{"MakeDir", `{"path":"MAGIC/new"}`}, {"MakeDir", `{"path":"MAGIC/new/below"}`},
			{"Move", `{"source":"MAGIC/f","destination":"/srv/moved"}`},
			{"Move", `{"source":"/srv/kept","destination":"MAGIC/new"}`}, {"Move", `{"source":"/srv/kept","destination":"MAGIC/new/below"}`},
		} {
			if got := s.call(c[0], strings.ReplaceAll(c[1], "MAGIC", magic)); !strings.HasPrefix(got, "permission_denied: ") {
				t.Errorf("%s %s, %s: %s", c[0], c[1], magic, got)
			}
		}
		for _, body := range []string{
			`{"source_paths":["MAGIC/f"],"destination":"/srv/whole"}`, `{"source_paths":["/srv/kept"],"destination":"MAGIC/whole"}`,
		} {
			if status, text := s.ask("POST", "/files/compose", strings.ReplaceAll(body, "MAGIC", magic)); status != 403 {
				t.Errorf("compose %s, %s: %d %s", body, magic, status, text)
			}
		}
		for _, path := range []string{magic + "/f", magic + "/new"} {
			if status, text := s.upload(path, "x"); status != 403 {
				t.Errorf("upload to %s: %d %s", path, status, text)
			}
			if status, text := s.ask("GET", "/files?path="+path, ""); status != 403 {
				t.Errorf("GET %s: %d %s", path, status, text)
			}
		}
		// The link itself is a file like others.
		path := fmt.Sprintf(`{"path":%q}`, magic)
		got := s.call("Stat", path) + "; " + s.call("Remove", path)
		if got != magic+" Lrwxrwxrwx root root; {}" && got != magic+" Lrwxrwxrwx user user; {}" {
			t.Errorf("the link %s: %s", magic, got)
		}
	}
	got := s.inside("ls /srv /srv/there; cat /srv/kept /srv/there/f")
	if strings.Contains(got, "new") || strings.Contains(got, "moved") || strings.Contains(got, "whole") || !strings.HasSuffix(got, "\nkept\nthere") {
		t.Errorf("after that there is %s", got)
	}
}

// TestFilesWithoutIsolationAreTheUsers: root of such a sandbox would be the machine's.
func TestFilesWithoutIsolationAreTheUsers(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	out := machine(t)
	s := newIsolated(t, func(spec *tend.SandboxSpec) { *spec = tend.SandboxSpec{Isolation: tend.IsolationNone} })
	want := seen(t, out)
	nobody := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("nobody:"))}
	for _, id := range []string{s.id, "debug_sandbox_id"} {
		for _, path := range []string{out + "/roots/closed", out + "/roots/new", out + "/far/open"} {
			if status, text := shared.Ask(t, "POST", "/files?username=nobody&path="+path, "x", "Content-Type", "application/octet-stream", "E2b-Sandbox-Id", id); status != http.StatusForbidden {
				t.Errorf("%s: upload to %s: %d %s", id, path, status, text)
			}
			status, text := shared.Ask(t, "POST", "/filesystem.Filesystem/MakeDir", fmt.Sprintf(`{"path":%q}`, out+"/roots/dir"), append(nobody, "Content-Type", "application/json", "E2b-Sandbox-Id", id)...)
			if status != http.StatusForbidden || !strings.Contains(text, "permission_denied") {
				t.Errorf("%s: MakeDir: %d %s", id, status, text)
			}
		}
	}
	if got := seen(t, out); got != want {
		t.Errorf("of the machine there is\n%s; there was\n%s", got, want)
	}
}

// TestManyFilesOfASandboxAtOnce: as E2B's own clients send them.
func TestManyFilesOfASandboxAtOnce(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	s := newIsolated(t, nil)
	paths := []string{"/app/one.txt", "/app/deep/two.txt", "three.txt", "/etc/four.txt"}
	body, kind := form(t, paths...)
	status, text := s.ask("POST", "/files", body, "Content-Type", kind)
	var done []struct{ Path, Type string }
	if err := json.Unmarshal([]byte(text), &done); status != 200 || err != nil || len(done) != len(paths) {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	for i, d := range done {
		if got := s.inside("cat " + d.Path + "; stat -c ' %U' " + d.Path); got != "text of "+paths[i]+" user" {
			t.Errorf("%s: %q", d.Path, got)
		}
	}
}

// form is one of several files, and its content type.
func form(t *testing.T, paths ...string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, path := range paths {
		disposition := fmt.Sprintf(`form-data; name="file"; filename=%q`, path)
		part := proctest.Value(w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}}))(t)
		proctest.Value(part.Write([]byte("text of " + path)))(t)
	}
	proctest.Must(t, w.Close())
	return b.String(), w.FormDataContentType()
}

// seen is all that can be seen of a tree of this machine.
func seen(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintln(&b, path, info.Mode(), st.Uid, st.Gid, info.Size(), st.Ctim)
		return nil
	}))
	return b.String()
}

// machine is a directory of this machine with what a sandbox may not touch: all that has
// the ids of its root and users, too.
func machine(t *testing.T) string {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("/usr/local", "tend-raw-"))(t) // sandboxes see that of the machine, as it was
	t.Cleanup(func() { proctest.Must(t, os.RemoveAll(dir)) })
	for name, uid := range map[string]int{"roots": 0, "far": 70_000, "inside": 1_000_000_000, "users": 1_000_001_000} {
		for path, mode := range map[string]fs.FileMode{"open": 0o666, "closed": 0o600} {
			proctest.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
			proctest.Must(t, os.WriteFile(filepath.Join(dir, name, path), []byte("of "+name), mode))
			proctest.Must(t, os.Chmod(filepath.Join(dir, name, path), mode))
			proctest.Must(t, os.Chown(filepath.Join(dir, name, path), uid, uid))
		}
		proctest.Must(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "far/behind"), []byte("of root"), 0o644))
	proctest.Must(t, os.Chmod(filepath.Join(dir, "far"), 0o700))
	proctest.Must(t, os.Chmod(dir, 0o755))
	return dir
}

// refused is the answer of a call that fails, as call returns it.
var refused = regexp.MustCompile(`^[a-z_]+: `)

// TestFilesOfASandboxInARaceWithItsPrograms: programs inside put links, directories, FIFOs
// and other files in place of what the calls are about, in each moment.
func TestFilesOfASandboxInARaceWithItsPrograms(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	out := machine(t)
	want := seen(t, out)
	s := newIsolated(t, nil)
	neighbour := newIsolated(t, nil)
	neighbour.inside("mkdir -m 777 /race; echo here > /race/kept; chmod 666 /race/kept")
	s.inside(`mkdir -m 777 /race; install -d -o user /race/base; cd /race; echo in > base/f
mkfifo fifo; mkdir -p roots/d; touch roots/d/f; ln f hard 2>/dev/null; ln -s /proc/1/root root; ln -s /proc/1/cwd cwd; ln -s ../../../../../../.. up; ln -s / top; ln -s ` + out + ` out`)
	p := proctest.Value(s.Processes().Spawn(t.Context(), tend.Command("python3", "-c", `
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
os.chdir("/race")
def swap(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
while True:
    for x in ("root", "cwd", "up", "top", "out", "fifo", "roots"):
        for y in ("a", "a/b", "base"):
            swap(x, y); swap(x, y)
    try: os.mkdir("a")
    except OSError: pass
    for name in ("a/new", "moved"):
        try: os.symlink("`+out+`/roots/open", name)
        except OSError: pass
`)))(t)
	defer p.Close()
	under := out[1:]
	for i := range 40 {
		for _, path := range []string{"/race/a/b/new", "/race/base/f", "/race/a/" + under + "/inside/open", "/race/a/b/" + under + "/users/new/f", "/race/base/" + under + "/roots/closed"} {
			if status, text := s.upload(path, "from outside"); status != 200 && (status < 400 || status == 502) {
				t.Fatalf("upload to %s: %d %s", path, status, text)
			}
			s.call("MakeDir", fmt.Sprintf(`{"path":%q}`, path+"-d/e"))
		}
		s.call("Move", fmt.Sprintf(`{"source":"/race/base","destination":"/race/a/moved/%d"}`, i))
		s.call("Move", fmt.Sprintf(`{"source":"/race/a/moved/%d","destination":"/race/base"}`, i))
		s.ask("POST", "/files/compose", `{"source_paths":["/race/base/f","/race/a/b/new"],"destination":"/race/a/`+under+`/roots/open"}`)
		s.call("Remove", `{"path":"/race/a/b"}`)
		s.call("Remove", `{"path":"/race/a/`+under+`"}`)
		s.call("ListDir", `{"path":"/race","depth":3}`)
		// The daemon's state is nowhere inside.
		for _, dir := range []string{"/race/a", "/race/a/b", "/race/base"} {
			for _, method := range []string{"Stat", "ListDir", "CreateWatcher"} {
				if got := s.call(method, fmt.Sprintf(`{"path":%q}`, dir+shared.StateDir())); !refused.MatchString(got) {
					t.Fatalf("%s of the daemon's state below %s: %s", method, dir, got)
				}
			}
			var watcher struct{ WatcherID string }
			if got := s.call("CreateWatcher", fmt.Sprintf(`{"path":%q,"recursive":true}`, dir)); !refused.MatchString(got) {
				proctest.Must(t, json.Unmarshal([]byte(got), &watcher))
				s.call("GetWatcherEvents", fmt.Sprintf(`{"watcherId":%q}`, watcher.WatcherID))
				if got := s.call("RemoveWatcher", fmt.Sprintf(`{"watcherId":%q}`, watcher.WatcherID)); got != "{}" {
					t.Fatalf("the end of a watch of %s: %s", dir, got)
				}
			}
		}
	}
	if got := seen(t, out); got != want {
		t.Errorf("of the machine there is\n%s; there was\n%s", got, want)
	}
	if got := neighbour.inside("ls -A /race; cat /race/kept"); got != "kept\nhere" {
		t.Errorf("the neighbour has %q", got)
	}
}

// TestSharesByTheFilesOfASandbox: file calls have no more rights on files of this machine
// than root inside.
func TestSharesByTheFilesOfASandbox(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	out := machine(t)
	s := newIsolated(t, func(spec *tend.SandboxSpec) {
		spec.Shares = []tend.SandboxShare{{Source: out, Target: "/ro", ReadOnly: true}, {Source: out + "/far", Target: "/far"}, {Source: out + "/roots", Target: "/rw"}}
	})
	want := seen(t, out+"/far") + seen(t, out+"/inside") + seen(t, out+"/users")
	for _, path := range []string{"/ro/roots/open", "/ro/roots/new", "/ro/new/f", "/far/closed", "/far/new", "/far/behind", "/ro/far/open"} {
		if status, text := s.upload(path, "x"); status != http.StatusForbidden {
			t.Errorf("upload to %s: %d %s", path, status, text)
		}
		for method, body := range map[string]string{
			"MakeDir": `{"path":%q}`, "Move": `{"source":"/etc/passwd","destination":%q}`,
		} {
			if got := s.call(method, fmt.Sprintf(body, path+"/x")); !strings.HasPrefix(got, "permission_denied") && !strings.HasPrefix(got, "internal") {
				t.Errorf("%s %s: %s", method, path, got)
			}
		}
		if got := s.call("Remove", fmt.Sprintf(`{"path":%q}`, path)); got != "{}" && !strings.HasPrefix(got, "permission_denied") {
			t.Errorf("Remove %s: %s", path, got)
		}
	}
	for path, code := range map[string]int{"/far/closed": 403, "/far/open": 403, "/far/behind": 403, "/ro/far/behind": 403, "/ro/far/open": 403, "/ro/roots/closed": 200} {
		root := s.inside("(cat " + path + ") 2>/dev/null")
		if status, text := s.ask("GET", "/files?path="+path, ""); status != code || (root != "") != (code == 200) {
			t.Errorf("GET %s: %d %s; root inside reads %q", path, status, text, root)
		}
	}
	if got := seen(t, out+"/far") + seen(t, out+"/inside") + seen(t, out+"/users"); got != want {
		t.Errorf("of the machine there is\n%s", got)
	}
	// One that may be written is root's inside as it is outside.
	if status, text := s.upload("/rw/made/f", "x"); status != 200 || s.inside("stat -c '%U' /rw/made /rw/made/f") != "user\nuser" {
		t.Errorf("upload to a share: %d %s", status, text)
	}
	// The kernel lets nobody inside write a file of an owner that there is not inside.
	foreign(t, out+"/roots/foreign", 70_000)
	foreign(t, out+"/users/foreign", 70_000) // seen inside without a share, too
	proctest.Must(t, os.Mkdir(out+"/roots/held", 0o777))
	foreign(t, out+"/roots/held/f", 70_000)
	for _, path := range []string{"/rw/foreign", out + "/users/foreign"} {
		if got := s.owners("/files?path="+path, "x", "Content-Type", "application/octet-stream"); got != "403 []" {
			t.Errorf("upload over %s, a file of nobody inside: %s", path, got)
		}
	}
	body := `{"source_paths":["/rw/made/f"],"destination":"/rw/foreign"}`
	const foreign = "it belongs to an id that there is not here"
	if status, text := s.ask("POST", "/files/compose", body); status != http.StatusForbidden || !strings.Contains(text, foreign) {
		t.Errorf("composed onto a file of nobody inside: %d %s", status, text)
	}
	for _, c := range [][2]string{
		{"Move", `{"source":"/rw/made/f","destination":"/rw/foreign"}`}, {"Move", `{"source":"/rw/foreign","destination":"/rw/made/h"}`},
		{"Remove", `{"path":"/rw/foreign"}`}, {"Remove", `{"path":"/rw/held"}`},
	} {
		got := s.call(c[0], c[1])
		if !strings.HasPrefix(got, "permission_denied: ") || !strings.HasSuffix(got, ": "+foreign+", so it is neither changed nor removed") {
			t.Errorf("%s %s, a file of nobody inside: %s", c[0], c[1], got)
		}
	}
	if text := s.inside("cat /rw/foreign /rw/made/f"); text != "of anotherx" {
		t.Errorf("then there is %q", text)
	}
	if got := s.owners("/files?path=/rw/made/f", "y", "Content-Type", "application/octet-stream"); got != "200 []" {
		t.Errorf("upload over a file of the user's: %s", got)
	}
	if got := s.owners("/files/compose", `{"source_paths":["/rw/made/f"],"destination":"/rw/made/g"}`); got != "200 []" {
		t.Errorf("composed: %s", got)
	}
}

// ordinary is the daemon of a user of whom the machine knows nothing. Below dir is a directory
// of that user, share.
func ordinary(t *testing.T) (d *daemon, dir string) {
	t.Helper()
	const id = 54_321
	dir = proctest.Value(os.MkdirTemp("/opt", "tend-raw-"))(t)
	t.Cleanup(func() { proctest.Must(t, os.RemoveAll(dir)) })
	proctest.Must(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"daemon", "share"} {
		proctest.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		proctest.Must(t, os.Chown(filepath.Join(dir, name), id, id))
	}
	cfg := config(dir+"/daemon", "setpriv", "--reuid", fmt.Sprint(id), "--regid", fmt.Sprint(id), "--clear-groups")
	cfg.Command[len(cfg.Command)-1] = dir + "/tend" // the user may not go to bin
	proctest.Must(t, testbin.Link(bin, dir+"/tend"))
	cfg.Env = append(os.Environ(), "HOME="+dir+"/daemon", "TMPDIR="+dir+"/daemon")
	return &daemon{testdaemon.Serve(t, cfg)}, dir
}

// foreign makes a file of this machine that all may write, of another user.
func foreign(t *testing.T, path string, uid int) {
	t.Helper()
	proctest.Must(t, os.WriteFile(path, []byte("of another"), 0o666))
	proctest.Must(t, os.Chmod(path, 0o666))
	proctest.Must(t, os.Chown(path, uid, uid))
}

// TestAnOwnerThatAFileKeepsIsTold: in a sandbox with one id a file cannot become the user's.
func TestAnOwnerThatAFileKeepsIsTold(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	d, dir := ordinary(t)
	foreign(t, dir+"/share/foreign", 70_000)
	s := d.isolated(t, func(spec *tend.SandboxSpec) {
		spec.Shares = []tend.SandboxShare{{Source: dir + "/share", Target: "/share"}}
	})
	kind := []string{"Content-Type", "application/octet-stream"}
	if got := s.owners("/files?path=/app/f", "x", kind...); got != "200 [root]" {
		t.Errorf("a new file: %s", got)
	}
	if got := s.owners("/files?username=root&path=/app/roots", "x", kind...); got != "200 []" {
		t.Errorf("a new file for root: %s", got)
	}
	if got := s.owners("/files?path=/share/foreign", "x", kind...); got != "200 [nobody]" {
		t.Errorf("a file of nobody inside: %s", got)
	}
	body, many := form(t, "/share/foreign", "/app/a", "/app/b")
	if got := s.owners("/files", body, "Content-Type", many); got != "200 [nobody root]" {
		t.Errorf("several files: %s", got)
	}
	if info := proctest.Value(os.Stat(dir + "/share/foreign"))(t); info.Sys().(*syscall.Stat_t).Uid != 70_000 {
		t.Errorf("the file of another user is %+v", info.Sys())
	}
	if text := string(proctest.Value(os.ReadFile(dir + "/share/foreign"))(t)); text != "text of /share/foreign" {
		t.Errorf("the file of another user holds %q", text)
	}
	if got := s.owners("/files/compose", `{"source_paths":["/app/a"],"destination":"/app/c"}`); got != "200 [root]" {
		t.Errorf("composed: %s", got)
	}
	if got := s.owners("/files/compose", `{"source_paths":["/app/b"],"destination":"/app/d","username":"root"}`); got != "200 []" {
		t.Errorf("composed for root: %s", got)
	}
}

// TestTheDiskOfASandboxHoldsForItsFiles.
func TestTheDiskOfASandboxHoldsForItsFiles(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	s := newIsolated(t, func(spec *tend.SandboxSpec) { spec.Size.Disk = 64 << 20 })
	if status, text := s.upload("/big/file", strings.Repeat("x", 100<<20)); status != http.StatusInsufficientStorage {
		t.Errorf("%d %.200s", status, text)
	}
	if status, text := s.upload("/big/small", "x"); status != 200 {
		t.Errorf("after that: %d %s", status, text)
	}
}
