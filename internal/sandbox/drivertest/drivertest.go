// Package drivertest is the conformance suite for sandbox drivers:
//
//	drivertest.Run(t, func(t *testing.T) driver.Driver { … })
package drivertest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Run runs the suite. open returns a fresh driver.
func Run(t *testing.T, open func(t *testing.T) driver.Driver) {
	for _, tc := range []struct {
		name string
		run  func(*testing.T, driver.Driver)
	}{
		{"a sandbox is found by id and by name until it is destroyed", life},
		{"names are unique and checked", names},
		{"what is wrong is told before anything is made", invalid},
		{"processes get the sandbox's directory and environment", inherited},
		{"a process has a group of its own, which it does not lead", ownGroup},
		{"a sandbox sees its own processes alone", apart},
		{"files and processes share the working directory", shared},
		{"accounts are those inside", accounts},
		{"ports inside can be reached", ports},
		{"a stopped sandbox has no processes and keeps its files", stopAndStart},
		{"a stopped disposable sandbox has no files", disposable},
		{"an update changes what it names and nothing else", update},
		{"destroying ends all processes", destroy},
		{"notes of faces are kept and changed", notes},
		{"a deadline destroys the sandbox", deadlineDestroys},
		{"a deadline pauses the sandbox", deadlinePauses},
		{"a deadline keeps the files alone", deadlineKeepsFiles},
		{"a deadline is extended only to a later time", extended},
		{"a paused sandbox stands still and goes on", pausedWithMemory},
		{"a sandbox that is paused without its memory keeps its files", pausedWithout},
		{"a sandbox is measured", measured},
		{"programs inside see a machine of their own", isolated},
		{"files as root of the sandbox", rootFiles},
		{"programs inside keep their pids, and are found by them", pids},
		{"a disk is as large as was asked for, whatever is done inside", disks},
		{"a disk stays what it is over stops, pauses and copies", disksStay},
		{"a network is what was asked for", networks},
		{"rules of a network are kept, checked and open no way to the machine", networkRules},
		{"what a driver cannot do is refused by the name of the field", refused},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, open(t)) })
	}
}

func create(t *testing.T, d driver.Driver, spec driver.Spec) (driver.Sandbox, driver.Info) {
	t.Helper()
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, info
}

// sh runs a line inside and returns its output and shell status.
func sh(t *testing.T, s driver.Sandbox, line string) (string, int) {
	t.Helper()
	p, err := s.Processes().Start(t.Context(), process.Spec{Shell: line})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	status := -1
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case process.EventOutput:
			out.Write(ev.Data)
		case process.EventExited:
			status = ev.Exit.ShellStatus()
		}
	}
	return out.String(), status
}

func life(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{Name: "one", Metadata: map[string]string{"k": "v"}})
	if info.State != driver.Ready || info.Name != "one" || info.Metadata["k"] != "v" || info.Created.IsZero() {
		t.Errorf("the new sandbox is %+v", info)
	}
	for _, key := range []string{"one", string(info.ID)} {
		found, err := d.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("Get(%q): %v", key, err)
		}
		again, err := found.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info, again); diff != "" {
			t.Errorf("found by %q:\n%s", key, diff)
		}
	}
	all, err := d.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != info.ID {
		t.Errorf("List: %+v, %v", all, err)
	}
	for range 2 { // repeating is no error
		if err := s.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"one", string(info.ID), "other"} {
		if _, err := d.Get(t.Context(), key); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("Get(%q) after the end: %v", key, err)
		}
	}
	if _, err := s.Info(t.Context()); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("Info after the end: %v", err)
	}
	create(t, d, driver.Spec{Name: "one"}) // the name is free again
}

func names(t *testing.T, d driver.Driver) {
	_, a := create(t, d, driver.Spec{})
	_, b := create(t, d, driver.Spec{})
	if a.Name == "" || a.Name == b.Name || a.ID == b.ID {
		t.Errorf("made up: %q %q, %q %q", a.Name, b.Name, a.ID, b.ID)
	}
	if _, err := d.Create(t.Context(), driver.Spec{Name: a.Name}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a second %q: %v", a.Name, err)
	}
	// An ID finds its sandbox whatever others are named.
	var wrong *driver.InvalidError
	c, _ := create(t, d, driver.Spec{Name: "c"})
	for _, id := range []string{string(a.ID), strings.ToUpper(string(a.ID)), string(driver.NewID())} {
		if _, err := d.Create(t.Context(), driver.Spec{Name: id}); !errors.As(err, &wrong) || wrong.Field != "name" {
			t.Errorf("a creation with the name %s: %v", id, err)
		}
		if _, err := c.Update(t.Context(), driver.Change{Name: &id}); !errors.As(err, &wrong) || wrong.Field != "name" {
			t.Errorf("a change to the name %s: %v", id, err)
		}
	}
	create(t, d, driver.Spec{Name: string(a.ID)[1:]}) // one letter less is no ID
}

func disposable(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{Disposable: true})
	if !info.Disposable {
		t.Errorf("it is %+v", info)
	}
	if _, status := sh(t, s, "mkdir d && echo gone > d/file && echo gone > file"); status != 0 {
		t.Fatal("status", status)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, status := sh(t, s, "ls -A; pwd -P; touch new"); out != info.Dir+"\n" || status != 0 {
		t.Errorf("after the stop there is %q, status %d", out, status)
	}
	if err := s.Start(t.Context()); err != nil { // it runs already
		t.Fatal(err)
	}
	if out, _ := sh(t, s, "ls -A"); out != "new\n" {
		t.Errorf("a start of what runs leaves %q", out)
	}
}

func invalid(t *testing.T, d driver.Driver) {
	for name, spec := range map[string]driver.Spec{
		"a name with a slash":      {Name: "a/b"},
		"a name that is too long":  {Name: strings.Repeat("a", driver.MaxName+1)},
		"a negative time":          {IdleTTL: -time.Second},
		"a relative directory":     {Run: driver.RunConfig{Dir: "work"}},
		"a variable without name":  {Run: driver.RunConfig{Env: map[string]string{"": "x"}}},
		"a NUL byte in a variable": {Run: driver.RunConfig{Env: map[string]string{"A": "\x00"}}},
		"a user that there is not": {Run: driver.RunConfig{User: "no-such-user-here"}},
		"a negative size":          {Size: driver.Size{Memory: -1}},
	} {
		var wrong *driver.InvalidError
		if _, err := d.Create(t.Context(), spec); !errors.As(err, &wrong) || wrong.Field == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left behind: %+v, %v", all, err)
	}
}

func apart(t *testing.T, d driver.Driver) {
	a, _ := create(t, d, driver.Spec{Name: "a"})
	b, _ := create(t, d, driver.Spec{Name: "b"})
	p, err := a.Processes().Start(t.Context(), process.Spec{Shell: "sleep 600", Tag: "t", Labels: map[string]string{"mine": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sel := range []process.Selector{{ID: p.ID()}, {Tag: "t"}} {
		if _, err := b.Processes().Get(t.Context(), sel); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("the other sandbox finds %+v: %v", sel, err)
		}
		if q, err := a.Processes().Get(t.Context(), sel); err != nil || q.ID() != p.ID() {
			t.Errorf("its own does not find %+v: %v", sel, err)
		}
	}
	for s, want := range map[driver.Sandbox]int{a: 1, b: 0} {
		infos, err := s.Processes().List(t.Context(), process.Filter{Labels: map[string]string{"mine": "yes"}})
		if err != nil || len(infos) != want {
			t.Errorf("List: %d processes, %v; want %d", len(infos), err, want)
		}
	}
}

func shared(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{})
	fs, err := s.Files("", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Write("sub/file", strings.NewReader("from outside\n"), nil); err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, s, "cat sub/file; echo from inside > other"); out != "from outside\n" {
		t.Errorf("the process sees %q", out)
	}
	f, _, err := fs.Open("other")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "from inside\n" {
		t.Errorf("outside sees %q, %v", text, err)
	}
	found(t, s, fs)
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Through the sandbox's own files: its directory may be no one else's.
	if _, err := fs.Stat(info.Dir); err == nil {
		t.Errorf("the files are left behind in %s", info.Dir)
	}
}

// found looks for what a process made, in each way that there is.
func found(t *testing.T, s driver.Sandbox, fs driver.Files) {
	t.Helper()
	w, err := fs.Watch("sub", files.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sh(t, s, "printf 'a\\na needle\\n' > sub/made")
	for seen := false; !seen; {
		events, err := w.Take()
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			seen = seen || ev.Name == "made" && ev.Op == files.OpCreate
		}
		if seen {
			break
		}
		select {
		case <-w.Ready():
		case <-t.Context().Done():
			t.Fatal("a process made a file, and the watch says nothing")
		}
	}
	made, err := fs.Resolve("sub/made")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := fs.Stat("sub/made"); err != nil || e.Path != made || e.Type != files.TypeFile || e.Size != 11 {
		t.Errorf("stat says %+v, %v", e, err)
	}
	if list, err := fs.List(t.Context(), ".", files.MaxDepth); err != nil || !slices.ContainsFunc(list,
		func(e files.Entry) bool { return e.Path == made }) {
		t.Errorf("the list is %+v, %v", list, err)
	}
	for _, q := range []files.Query{
		{Glob: "sub/m*", Limit: 10},
		{Text: "needle", Limit: 10, MaxLine: 1 << 10, MaxBytes: 1 << 20},
	} {
		matches, truncated, err := fs.Search(t.Context(), ".", q)
		if err != nil || truncated || len(matches) != 1 || matches[0].Path != made {
			t.Errorf("%+v finds %+v, %v, %v", q, matches, truncated, err)
			continue
		}
		if m := matches[0]; q.Text != "" && (m.Line != 2 || string(m.Text) != "a needle") {
			t.Errorf("%+v finds line %d %q", q, m.Line, m.Text)
		}
	}
}

func accounts(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{})
	own, err := s.User("")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, s, "id -u; pwd -P"); out != fmt.Sprintf("%d\n%s\n", own.UID, own.Home) || own.Home != info.Dir {
		t.Errorf("the sandbox's own account is %+v; a process says %q", own, out)
	}
	if u, err := s.User(strconv.Itoa(own.UID)); err != nil || u.UID != own.UID || u.Home != own.Home {
		t.Errorf("by number: %+v, %v", u, err)
	}
	for _, name := range []string{"no-such-user", "4294967295", "1:x"} {
		if _, err := s.User(name); !errors.Is(err, files.ErrUnknownUser) {
			t.Errorf("User(%q): %v", name, err)
		}
		if _, err := s.Files(name, ""); !errors.Is(err, files.ErrUnknownUser) {
			t.Errorf("Files(%q): %v", name, err)
		}
	}
	if _, err := s.Files("", info.Dir+"/below"); err != nil {
		t.Error(err)
	}
}

func ports(t *testing.T, d driver.Driver) {
	s, _ := create(t, d, driver.Spec{})
	for _, port := range []int{0, -1, 65536} {
		if _, err := s.Dial(t.Context(), port); err == nil {
			t.Errorf("port %d can be dialled", port)
		}
	}
	port, said := listen(t, s)
	c, err := s.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "from outside\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "got from outside\n" {
		t.Errorf("it answers %q, %v", answer, err)
	}
	proctest.WantExit(t, said, 0)
	if c, err := s.Dial(t.Context(), port); err == nil {
		c.Close()
		t.Error("a port can be dialled on which nobody listens any more")
	}
}

// listen starts a program inside that answers one line on a port.
func listen(t *testing.T, s driver.Sandbox) (port int, p process.Process) {
	t.Helper()
	p = proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"perl", "-e", `
		use Socket; $| = 1;
		socket(L, PF_INET, SOCK_STREAM, 0) && bind(L, sockaddr_in(0, inet_aton("127.0.0.1"))) && listen(L, 1) or die $!;
		($port) = sockaddr_in(getsockname(L)); print "$port\n";
		accept(C, L) or die $!; close(L);
		$line = <C>; syswrite(C, "got $line") or die $!; shutdown(C, 2);`}})
	if _, err := p.Wait(t.Context(), process.Until{Match: `^\d+$`}); err != nil {
		t.Fatal(err)
	}
	line := ""
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{NoFollow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		line += string(ev.Data)
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the program inside says %q", line)
	}
	return port, p
}

func stopAndStart(t *testing.T, d driver.Driver) {
	s, _ := create(t, d, driver.Spec{})
	if _, status := sh(t, s, "echo kept > file"); status != 0 {
		t.Fatal("status", status)
	}
	p, err := s.Processes().Start(t.Context(), process.Spec{Shell: "sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil {
		t.Errorf("the process goes on: %+v, %v", res, err)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State != driver.Stopped || info.StoppedAt.IsZero() {
		t.Errorf("stopped: %+v, %v", info, err)
	}
	if _, err := s.Processes().Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("a start in a stopped sandbox: %v", err)
	}
	for range 2 {
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := sh(t, s, "cat file"); out != "kept\n" {
		t.Errorf("the file holds %q", out)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State != driver.Ready || !info.StoppedAt.IsZero() {
		t.Errorf("started: %+v, %v", info, err)
	}
}

func update(t *testing.T, d driver.Driver) {
	s, before := create(t, d, driver.Spec{Name: "old", IdleTTL: time.Hour, Run: driver.RunConfig{Env: map[string]string{"A": "1", "B": "2"}}})
	create(t, d, driver.Spec{Name: "taken"})
	name, taken, bad, ttl := "new", "taken", "not a name", 2*time.Hour
	if _, err := s.Update(t.Context(), driver.Change{Name: &taken}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	var wrong *driver.InvalidError
	if _, err := s.Update(t.Context(), driver.Change{Name: &bad}); !errors.As(err, &wrong) {
		t.Errorf("a bad name: %v", err)
	}
	after, err := s.Update(t.Context(), driver.Change{Name: &name, DeleteAfterStop: &ttl,
		Run: &driver.RunConfig{Env: map[string]string{"B": "3"}}, Metadata: map[string]string{"m": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := before
	want.Name, want.DeleteAfterStop, want.Updated, want.Metadata = name, ttl, after.Updated, map[string]string{"m": "1"}
	want.Run.Env = map[string]string{"A": "1", "B": "3"}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error(diff)
	}
	if _, err := d.Get(t.Context(), "old"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("the old name: %v", err)
	}
	if _, err := d.Get(t.Context(), "new"); err != nil {
		t.Errorf("the new name: %v", err)
	}
}

func destroy(t *testing.T, d driver.Driver) {
	s, _ := create(t, d, driver.Spec{})
	p, err := s.Processes().Start(t.Context(), process.Spec{Shell: "sleep 600 & sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Info(t.Context()); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("the process is still known: %v", err)
	}
	if _, err := s.Processes().Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a start after the end: %v", err)
	}
}
