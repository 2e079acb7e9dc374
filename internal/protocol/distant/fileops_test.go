package distant_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b := proctest.Value(os.ReadFile(path))(t)
	return string(b)
}

// raw asks with one line and returns the answer as it is.
func (c *lineConn) raw(request map[string]any) map[string]any {
	c.t.Helper()
	text := proctest.Value(json.Marshal(request))(c.t)
	c.send(string(text))
	return c.any()
}

func (c *lineConn) any() (out map[string]any) {
	c.t.Helper()
	text, err := c.r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func TestFileRequests(t *testing.T) {
	c := dialLines(t, serveLines(t))
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	type m = map[string]any
	ok := m{"type": "ok"}
	kind := func(k string) m { return m{"type": "error", "kind": k} }
	for _, tc := range []struct {
		name      string
		ask, want m
	}{
		{"a file is written", m{"type": "file_write", "path": file, "data": []int{104, 105}}, ok},
		{"and appended to", m{"type": "file_append_text", "path": file, "text": " there"}, ok},
		{"and read as text", m{"type": "file_read_text", "path": file}, m{"type": "text", "data": "hi there"}},
		{"and as bytes", m{"type": "file_write_text", "path": file, "text": "é"}, ok},
		{"which are an array", m{"type": "file_read", "path": file}, m{"type": "blob", "data": []any{195.0, 169.0}}},
		{"a file that is missing is not found", m{"type": "file_read", "path": file + "x"}, kind("not_found")},
		{"nothing is written to a directory that is missing", m{"type": "file_write_text", "path": dir + "/no/a", "text": ""}, kind("not_found")},
		{"a directory is made", m{"type": "dir_create", "path": dir + "/d"}, ok},
		{"but not twice", m{"type": "dir_create", "path": dir + "/d"}, kind("already_exists")},
		{"nor its parents", m{"type": "dir_create", "path": dir + "/e/f"}, kind("not_found")},
		{"unless it is told to", m{"type": "dir_create", "path": dir + "/e/f", "all": true}, ok},
		{"a file is copied", m{"type": "copy", "src": file, "dst": dir + "/e/b"}, ok},
		{"a directory is copied with what is in it", m{"type": "copy", "src": dir + "/e", "dst": dir + "/g"}, ok},
		{"a directory is not copied into itself", m{"type": "copy", "src": dir + "/e", "dst": dir + "/e/x"}, kind("invalid_input")},
		{"the copy exists", m{"type": "exists", "path": dir + "/g/b"}, m{"type": "exists", "value": true}},
		{"a file is renamed", m{"type": "rename", "src": dir + "/g/b", "dst": dir + "/g/c"}, ok},
		{"the old name does not exist", m{"type": "exists", "path": dir + "/g/b"}, m{"type": "exists", "value": false}},
		{"a directory that is not empty is not removed", m{"type": "remove", "path": dir + "/g"}, m{"type": "error"}},
		{"unless it is told to", m{"type": "remove", "path": dir + "/g", "force": true}, ok},
		{"what is missing cannot be removed", m{"type": "remove", "path": dir + "/g"}, kind("not_found")},
		{"permissions are set", m{"type": "set_permissions", "path": file, "permissions": m{"owner_exec": true, "other_read": false, "group_read": false}}, ok},
		{"in a directory, too", m{"type": "set_permissions", "path": dir + "/e", "permissions": m{"other_exec": false}, "options": m{"recursive": true}}, ok},
		{"an unknown option is refused", m{"type": "set_permissions", "path": file, "permissions": m{}, "options": m{"x": true}}, kind("invalid_input")},
		{"a listing of what is missing is not found", m{"type": "dir_read", "path": dir + "/no"}, kind("not_found")},
		{"a path of a file is no directory", m{"type": "dir_read", "path": file}, kind("other")},
		{"what is not watched cannot be unwatched", m{"type": "unwatch", "path": dir}, kind("not_found")},
		{"a search that does not run cannot be cancelled", m{"type": "cancel_search", "id": 5}, kind("not_found")},
		{"a device is not read", m{"type": "file_read", "path": "/dev/zero"}, m{"type": "error"}},
	} {
		got := c.raw(tc.ask)
		delete(got, "description")
		if _, any := tc.want["kind"]; !any && tc.want["type"] == "error" {
			delete(got, "kind")
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	got := c.raw(m{"type": "metadata", "path": file, "canonicalize": true})
	if got["file_type"] != "file" || got["len"] != 2.0 || got["readonly"] != false || got["canonicalized_path"] == nil ||
		got["unix"].(m)["owner_exec"] != true || got["unix"].(m)["other_read"] != false {
		t.Errorf("%v", got)
	}
	born, err := exec.Command("stat", "-c", "%W", file).Output() // 0: this filesystem does not keep it
	if err != nil {
		t.Fatal(err)
	}
	created, _ := got["created"].(float64)
	if fmt.Sprintln(int64(created)) != string(born) {
		t.Errorf("created is %v, want %s", got["created"], born)
	}
}

func TestDirRead(t *testing.T) {
	c := dialLines(t, serveLines(t))
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(dir+"/d/e", 0o700))
	for _, f := range []string{"/a", "/d/b"} {
		proctest.Must(t, os.WriteFile(dir+f, nil, 0o600))
	}
	proctest.Must(t, os.Symlink("a", dir+"/l"))
	for _, tc := range []struct{ options, want string }{
		{`{}`, "a file 1|d dir 1|l symlink 1"},
		{`{"depth":0}`, "a file 1|d dir 1|d/b file 2|d/e dir 2|l symlink 1"},
		{`{"absolute":true,"canonicalize":true,"include_root":true}`, "$ dir 0|$/a file 1|$/a symlink 1|$/d dir 1"},
	} {
		ask := map[string]any{"type": "dir_read", "path": dir}
		proctest.Must(t, json.Unmarshal([]byte(tc.options), &ask))
		var got []string
		for _, e := range c.raw(ask)["entries"].([]any) {
			e := e.(map[string]any)
			b, _ := json.Marshal(e["depth"])
			got = append(got, strings.ReplaceAll(e["path"].(string), dir, "$")+" "+e["file_type"].(string)+" "+string(b))
		}
		sort.Strings(got)
		if diff := cmp.Diff(tc.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%s: %s", tc.options, diff)
		}
	}
}

func TestWatch(t *testing.T) {
	c := dialLines(t, serveLines(t))
	dir := t.TempDir()
	c.ask("ok", `{"type":"watch","path":%q,"only":["create","delete"]}`, dir)
	path := filepath.Join(dir, "new")
	for _, want := range []string{"create", "delete"} {
		var err error
		if want == "create" {
			err = os.WriteFile(path, []byte("x"), 0o600)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := c.any()
		if got["type"] != "changed" || got["kind"] != want || got["path"] != path || got["timestamp"] == nil {
			t.Errorf("%v", got)
		}
	}
	c.ask("ok", `{"type":"unwatch","path":%q}`, dir)
	if l := c.raw(map[string]any{"type": "watch", "path": dir, "only": []string{"nope"}}); l["kind"] != "invalid_input" {
		t.Errorf("%v", l)
	}
}

func TestSearch(t *testing.T) {
	c := dialLines(t, serveLines(t))
	dir := t.TempDir()
	for name, text := range map[string]string{"one": "first\nneedle here, needle there\n", "two": "nothing", ".hidden": "needle", "binary": "\x00needle"} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tc := range []struct{ name, query, want string }{
		{"lines", `{"target":"contents","condition":{"type":"contains","value":"needle"},"options":{"ignore_hidden":true}}`, "one 2 6 0-6 13-19"},
		{"paths", `{"target":"path","condition":{"type":"ends_with","value":"two"}}`, "two"},
		{"either", `{"target":"path","condition":{"type":"or","value":[{"type":"regex","value":"on[e]$"},{"type":"ends_with","value":"two"}]}}`, "one two"},
		{"up to a limit", `{"target":"path","condition":{"type":"regex","value":"o"},"options":{"limit":1,"allowed_file_types":["file"],"pagination":1}}`, "one"},
	} {
		var q map[string]any
		proctest.Must(t, json.Unmarshal([]byte(tc.query), &q))
		q["paths"] = []string{dir}
		started := c.raw(map[string]any{"type": "search", "query": q})
		if started["type"] != "search_started" {
			t.Fatalf("%s: %v", tc.name, started)
		}
		var got []string
		for {
			m := c.any()
			if m["id"] != started["id"] {
				t.Fatalf("%v", m)
			}
			if m["type"] == "search_done" {
				break
			}
			for _, r := range m["matches"].([]any) {
				got = append(got, shown(r.(map[string]any)))
			}
		}
		sort.Strings(got)
		if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	for _, bad := range []string{`{"target":"contents","condition":{"type":"regex","value":"("},"paths":[]}`, `{"target":"x","condition":{"type":"regex","value":"a"},"paths":[]}`, `{"target":"path","paths":[]}`} {
		c.ask("error", `{"type":"search","query":%s}`, bad)
	}
}

// TestAHardSearchIsBounded: an expression may not expand without end, and the
// end of the connection ends a search in a file of terabytes.
func TestAHardSearchIsBounded(t *testing.T) {
	c := dialLines(t, serveLines(t))
	dir := t.TempDir()
	hard := map[string]any{"target": "contents", "paths": []string{dir}, "condition": map[string]any{"type": "regex", "value": strings.Repeat("x{1000}", 20) + "y"}}
	if got := c.raw(map[string]any{"type": "search", "query": hard}); got["kind"] != "invalid_input" || !strings.Contains(got["description"].(string), "10000 steps") {
		t.Errorf("%v", got)
	}
	line := []byte(strings.Repeat("x", 1<<20))
	file := proctest.Value(os.Create(filepath.Join(dir, "long")))(t)
	defer file.Close()
	for range 32 {
		proctest.Value(file.Write(line))(t)
	}
	// Some hours of work; that it ends with the connection is the cleanup's to
	// wait for.
	hard["condition"] = map[string]any{"type": "regex", "value": "(?:x?){900}x{900}(?:x?){900}x{900}y"}
	if got := c.raw(map[string]any{"type": "search", "query": hard}); got["type"] != "search_started" {
		t.Errorf("%v", got)
	}
}

// TestFilesOfAnotherUserStayClosed: a face for another user reads, lists,
// searches and changes with that user's rights.
func TestFilesOfAnotherUserStayClosed(t *testing.T) {
	proctest.Root(t)
	f := proctest.Value(distant.New(distant.Config{Sandbox: host.NewMachine(testkeeper.New(t)), User: "nobody", Dir: "/"}))(t)
	c := dialLines(t, serveLinesOf(t, f))
	top := proctest.Value(os.MkdirTemp("", "distant-"))(t)
	t.Cleanup(func() { os.RemoveAll(top) })
	closed, link := filepath.Join(top, "closed"), filepath.Join(top, "link")
	secret := filepath.Join(closed, "secret")
	for _, err := range []error{os.Chmod(top, 0o777), os.Mkdir(closed, 0o700), os.WriteFile(secret, []byte("root's"), 0o644), os.Symlink(closed, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type m = map[string]any
	for _, path := range []string{secret, filepath.Join(link, "secret")} {
		for _, ask := range []m{
			{"type": "file_read", "path": path}, {"type": "file_read_text", "path": path}, {"type": "file_write_text", "path": path, "text": "x"},
			{"type": "file_append_text", "path": path, "text": "x"}, {"type": "remove", "path": path}, {"type": "remove", "path": path, "force": true},
			{"type": "copy", "src": path, "dst": top + "/got"}, {"type": "rename", "src": path, "dst": top + "/got"}, {"type": "exists", "path": path},
			{"type": "metadata", "path": path}, {"type": "metadata", "path": path, "canonicalize": true}, {"type": "watch", "path": path},
			{"type": "dir_read", "path": filepath.Dir(path)}, {"type": "dir_create", "path": path + "s"}, {"type": "dir_create", "path": path + "s/t", "all": true},
			{"type": "set_permissions", "path": path, "permissions": m{"other_write": true}},
			{"type": "set_permissions", "path": filepath.Dir(path), "permissions": m{"other_write": true}, "options": m{"recursive": true, "follow_symlinks": true}},
		} {
			if got := c.raw(ask); got["type"] != "error" || got["kind"] != "permission_denied" {
				t.Errorf("%v: %v", ask, got)
			}
		}
		started := c.raw(m{"type": "search", "query": m{"target": "contents", "paths": []string{path, filepath.Dir(path)}, "condition": m{"type": "contains", "value": "root"}, "options": m{"follow_symbolic_links": true}}})
		if got := c.any(); got["type"] != "search_done" || got["id"] != started["id"] {
			t.Errorf("a search found %v", got)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "root's" {
		t.Errorf("root's file holds %q, %v", text, err)
	}
}

func shown(r map[string]any) string {
	out := filepath.Base(r["path"].(string))
	if r["type"] == "path" {
		return out
	}
	for _, f := range []string{"line_number", "absolute_offset"} {
		b, _ := json.Marshal(r[f])
		out += " " + string(b)
	}
	for _, s := range r["submatches"].([]any) {
		s := s.(map[string]any)
		b, _ := json.Marshal(s["start"])
		e, _ := json.Marshal(s["end"])
		out += " " + string(b) + "-" + string(e)
	}
	return out
}
