package project

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/support/proctest"
)

// said is a process that has said something, and hears nothing.
type said struct{ io.Reader }

func (said) Write(data []byte) (int, error) { return len(data), nil }
func (said) Close() error                   { return nil }

// pipes lead to a server in this process.
type pipes struct {
	io.Reader
	io.WriteCloser
	ended chan error
}

func (p pipes) Close() error {
	return errors.Join(p.WriteCloser.Close(), <-p.ended)
}

// served is a project over the wire.
func served(t *testing.T, root string) *Remote {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	p := pipes{from, to, make(chan error, 1)}
	go func() {
		err := serve(context.Background(), in, out)
		out.Close()
		p.ended <- err
	}()
	r, _, err := Dial(t.Context(), p, Config{ID: "e1", Root: root, Cwd: root})
	proctest.Must(t, err)
	return r
}

// What is done over the wire is done as here, and its errors are told apart as here. Nothing
// is left of it in the project.
func TestAProjectOverTheWire(t *testing.T) {
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	r := served(t, root)
	ctx := t.Context()
	if r.Root() != root {
		t.Errorf("its root is %q", r.Root())
	}
	if _, _, err := r.ReadFile(ctx, "none", 0, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(root, "part"), []byte("the user's"), 0o644))
	proctest.Must(t, r.Take(ctx, 1))
	proctest.Must(t, r.WriteFile(ctx, "part", []byte("\x00\xffbytes")))
	proctest.Must(t, r.WriteFile(ctx, "made", []byte("made")))
	proctest.Must(t, r.Mark(ctx))
	if data, size, err := r.ReadFile(ctx, "part", 0, 100); string(data) != "\x00\xffbytes" || size != 7 || err != nil {
		t.Errorf("it is %q, %d, %v", data, size, err)
	}
	if paths := proctest.Value(r.Changed(ctx))(t); strings.Join(paths, " ") != "made part" {
		t.Errorf("changed are %q", paths)
	}
	if err := r.WriteFile(ctx, "../out", []byte("x")); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("outside: %v", err)
	}
	// What a person has allowed is at the path that they saw, or nowhere.
	out := filepath.Join(t.TempDir(), "out")
	proctest.Must(t, os.WriteFile(out, []byte("out"), 0o644))
	if _, _, err := r.ReadFile(ctx, out, 0, 10); !errors.Is(err, guard.ErrAsk) {
		t.Errorf("to ask for: %v", err)
	}
	where := proctest.Value(r.Where(ctx, out))(t)
	if data, _, err := r.Allowed().ReadFile(ctx, where, 0, 10); string(data) != "out" || err != nil {
		t.Errorf("what is allowed: %q, %v", data, err)
	}
	proctest.Must(t, r.Allowed().WriteFile(ctx, where, []byte("changed")))
	if data := proctest.Value(os.ReadFile(out))(t); string(data) != "changed" {
		t.Errorf("it is %q", data)
	}
	if all, _, err := r.Allowed().List(ctx, filepath.Dir(where), 10); len(all) != 1 || err != nil {
		t.Errorf("there are %v, %v", all, err)
	}
	other := filepath.Join(t.TempDir(), "other")
	proctest.Must(t, os.WriteFile(other, []byte("other"), 0o644))
	proctest.Must(t, os.Remove(out))
	proctest.Must(t, os.Symlink(other, out))
	if err := r.Allowed().WriteFile(ctx, where, []byte("x")); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("a link in its place: %v", err)
	}
	if where, err := r.Where(ctx, "/proc/self/environ"); err == nil {
		t.Errorf("it may be asked for %s", where)
	}
	done, stop := context.WithCancel(ctx)
	stop()
	if _, _, err := r.Search(done, ".", "", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("a search whose time is over: %v", err)
	}
	back := proctest.Value(r.Rollback(ctx, 1, false))(t)
	if data := proctest.Value(os.ReadFile(filepath.Join(root, "part")))(t); string(data) != "the user's" || len(back.Paths) != 2 || len(back.Left) > 0 {
		t.Errorf("it is %q after %+v", data, back)
	}
	proctest.Must(t, r.Drop(ctx, 1))
	proctest.Must(t, r.Close())
	if all := proctest.Value(os.ReadDir(root))(t); len(all) != 1 {
		t.Errorf("left are %v", all)
	}
}

// A process that ends, or says what is no answer, is lost, and asked for nothing more.
func TestAProcessThatSaysNonsenseIsLost(t *testing.T) {
	opened := proctest.Value(json.Marshal(answer{ID: 1, Result: proctest.Value(json.Marshal(Opened{Root: "/x"}))(t)}))(t)
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello\n", "half a line": `{"id": 2`, "another type": `{"id":2,"result":{"a":1}}` + "\n", "other answers": strings.Repeat(`{"id":9}`+"\n", 1000),
		"a list without end": `{"id":2,"result":[` + strings.Repeat(`"",`, maxValues+1) + `""]}` + "\n",
	} {
		r, _, err := Dial(t.Context(), said{strings.NewReader(string(opened) + "\n" + text)}, Config{})
		proctest.Must(t, err)
		told := 0
		r.OnBroken = func() { told++ }
		for range 2 {
			_, err := r.Changed(t.Context())
			if _, ok := errors.AsType[*BrokenError](err); !ok || r.Broken() == nil || told != 1 {
				t.Errorf("%s: %v, told %d times", name, err, told)
			}
		}
		proctest.Must(t, r.Close())
	}
	if _, _, err := Dial(t.Context(), said{strings.NewReader(`{"id":1,"result":{"root":"relative"}}` + "\n")}, Config{}); err == nil {
		t.Error("a root that is no path was taken")
	}
}

// deaf is a process that opens the project, and then neither reads nor says anything, until it
// is ended.
type deaf struct {
	io.Reader
	heard int
	ended chan struct{}
}

func (d *deaf) Read(to []byte) (int, error) {
	if n, err := d.Reader.Read(to); err == nil {
		return n, nil
	}
	<-d.ended
	return 0, io.EOF
}

func (d *deaf) Write(data []byte) (int, error) {
	if d.heard++; d.heard == 1 {
		return len(data), nil
	}
	<-d.ended
	return 0, io.ErrClosedPipe
}

func (d *deaf) Close() error {
	close(d.ended)
	return nil
}

// A process that takes no request holds nobody up for longer than the request may last: it is
// lost then, and can be ended.
func TestAProcessThatTakesNoRequestIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{Reader: strings.NewReader(`{"id":1,"result":{"root":"/x"}}` + "\n"), ended: make(chan struct{})}
		r, _, err := Dial(t.Context(), d, Config{})
		proctest.Must(t, err)
		told := 0
		r.OnBroken = func() { told++ }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = r.WriteFile(ctx, "large", []byte("x"))
		if _, ok := errors.AsType[*BrokenError](err); !ok || told != 1 {
			t.Errorf("%v, told %d times", err, told)
		}
		proctest.Must(t, r.Close())
	})
}

// stopped is a process that opens its project, and then says what it is made to say and no
// more, as one that was stopped in the midst of its work.
type stopped struct {
	*io.PipeReader
	say *io.PipeWriter
}

func (s stopped) Write(data []byte) (int, error) { return len(data), nil }
func (s stopped) Close() error                   { return s.say.Close() }

// A process that takes a request and then stands still is lost after two minutes, whatever
// time the request has; one that works on it is waited for, and so is one that may stand
// still.
func TestAProcessThatStandsStillIsLost(t *testing.T) {
	for name, tt := range map[string]struct {
		beats int // once in five seconds
		still bool
		lost  time.Duration // after it has begun; 0: never
	}{
		"stopped":                     {lost: 2 * time.Minute},
		"stopped after an hour":       {beats: 720, lost: time.Hour + 2*time.Minute},
		"in a sandbox that is paused": {still: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, say := io.Pipe()
				go func() {
					io.WriteString(say, `{"id":1,"result":{"root":"/x"}}`+"\n")
					for range tt.beats {
						time.Sleep(beatEvery)
						io.WriteString(say, `{"id":0}`+"\n")
					}
				}()
				r, _, err := Dial(t.Context(), stopped{from, say}, Config{})
				proctest.Must(t, err)
				r.Still = func() bool { return tt.still }
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				_, err = r.Changed(ctx)
				after := time.Since(begun)
				if broken, ok := errors.AsType[*BrokenError](err); tt.lost > 0 && (!ok || !strings.Contains(broken.Why, "stood still") || after < tt.lost || after > tt.lost+2*beatEvery) {
					t.Errorf("after %v: %v; want it lost after %v", after, err, tt.lost)
				}
				if tt.lost == 0 && after < 3*time.Hour {
					t.Errorf("given up after %v: %v", after, err)
				}
				proctest.Must(t, r.Close())
			})
		})
	}
}

// What a process says has changed is no more than one of our own would say.
func TestADiffOfAProcessIsClipped(t *testing.T) {
	long := strings.Repeat("é", checkpoint.MaxDiff)
	for i, call := range []func(r *Remote) (string, error){
		func(r *Remote) (string, error) {
			out, err := r.Review(t.Context(), 1)
			if len(out.Files) != 1 || out.Files[0].After != "" {
				t.Errorf("%d files", len(out.Files))
			}
			return out.Diff, err
		},
		func(r *Remote) (string, error) {
			out, err := r.Rollback(t.Context(), 1, false)
			return out.Diff, err
		},
	} {
		text := proctest.Value(json.Marshal(map[string]any{"id": 2, "result": map[string]any{"Diff": long, "Files": []any{map[string]any{"After": strings.Repeat("x", MaxReviewed+1)}}}}))(t)
		r, _, err := Dial(t.Context(), said{strings.NewReader(`{"id":1,"result":{"root":"/x"}}` + "\n" + string(text) + "\n")}, Config{})
		proctest.Must(t, err)
		got, err := call(r)
		if err != nil || len(got) > checkpoint.MaxDiff || !utf8.ValidString(got) || !strings.Contains(got, "left out") {
			t.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
		_ = r.Close()
	}
}

// FuzzProjectAnswers: whatever a process in a sandbox says ends with an answer or an error.
func FuzzProjectAnswers(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"root":"/x"}}` + "\n" + `{"id":2,"result":["a"]}` + "\n"))
	f.Add([]byte(`{"id":1,"result":{"root":"/x","variables":["QQ=="]}}` + "\n" + `{"id":2,"error":{"text":"no","is":"not_exist"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, _, err := Dial(ctx, said{bytes.NewReader(data)}, Config{})
		if err != nil {
			return
		}
		_, _ = r.Changed(ctx) // an answer, or why there is none
		if ctx.Err() != nil {
			t.Error("it hangs")
		}
		_ = r.Close()
	})
}
