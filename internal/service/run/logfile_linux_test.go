package run_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// logged is all that a file and those before it have, oldest first.
func logged(t *testing.T, path string, keep int) string {
	t.Helper()
	var all strings.Builder
	for n := keep; n >= 0; n-- {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		b, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestTheFileOfAServiceHasEachByteOnce: over its runs, supervisors that end while it writes, and files
// that are full.
func TestTheFileOfAServiceHasEachByteOnce(t *testing.T) {
	m := testkeeper.New(t)
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "logs", "web.log")
	file := fmt.Sprintf(`  web: {command: 'for n in $(seq 150); do echo "$0 $n"; sleep 0.005; done; exit 1', restart: {max: 2, within: 1h, delay: 10ms}, log: {file: %s, rotate: 1KiB, keep: 100}}
`, out)
	l := live(t, m, dir)
	l.declare(file)
	l.up()
	for len(logged(t, out, 100)) < 2500 { // each supervisor ends in the middle of something
		n := len(logged(t, out, 100))
		proctest.Eventually(t, "it writes on", func() bool { return len(logged(t, out, 100)) > n })
		l.stop()
		l = live(t, m, dir)
	}
	l.phase("web", supervisor.Failed)
	var want strings.Builder
	for range 3 {
		for n := range 150 {
			fmt.Fprintf(&want, "/bin/sh %d\n", n+1)
		}
	}
	proctest.Eventually(t, "the file has all", func() bool { return len(logged(t, out, 100)) >= want.Len() })
	if got := logged(t, out, 100); got != want.String() {
		t.Errorf("of %d bytes it has %d, or others: %.2000s", want.Len(), len(got), got)
	}
	if info := proctest.Value(os.Stat(out))(t); info.Size() > 1<<10 {
		t.Errorf("the newest has %d bytes", info.Size())
	}
	if _, err := os.Stat(out + ".4"); err != nil {
		t.Error(err)
	}
	l.stop()
	// One that was killed has written a part of what it was about to write.
	record, had := filepath.Join(dir, "web.log"), logged(t, out, 0)
	r := map[string]any{}
	proctest.Must(t, json.Unmarshal(proctest.Value(os.ReadFile(record))(t), &r))
	r["text"], r["size"] = []byte("first\nsecond\n"), len(had)
	proctest.Must(t, os.WriteFile(record, proctest.Value(json.Marshal(r))(t), 0o600))
	proctest.Must(t, os.WriteFile(out, []byte(had+"first\nsec"), 0o600))
	l = live(t, m, dir)
	proctest.Eventually(t, "the rest is there", func() bool { return logged(t, out, 0) == had+"first\nsecond\n" })
	l.end(m, "web")
}

// TestTheLinesOfAFileHaveTheirTimes, and those of two streams are not mixed; of full files only some
// are kept, a file that cannot be written is written later, and one that is not wanted any more is left.
func TestTheLinesOfAFileHaveTheirTimes(t *testing.T) {
	m := testkeeper.New(t)
	dir, place := t.TempDir(), t.TempDir()
	out := filepath.Join(place, "web.log")
	proctest.Must(t, os.Mkdir(out, 0o700)) // in its way
	l := live(t, m, dir)
	l.declare(fmt.Sprintf(`  web: {command: 'printf one; sleep 0.3; echo two >&2; sleep 0.3; echo three; exec sleep 1000', log: {file: %s, date: true}}
  small: {command: 'for n in $(seq 2000); do echo line $n; done; exec sleep 1000', log: {file: %s, rotate: 1KiB, keep: 2}}
`, out, filepath.Join(place, "small.log")))
	l.up()
	l.ready("web")
	proctest.Must(t, os.Remove(out))
	proctest.Eventually(t, "the file has all", func() bool { return strings.Contains(logged(t, out, 0), "three") })
	stamp := `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[-+]\d\d:\d\d) `
	if got := logged(t, out, 0); !regexp.MustCompile(`^` + stamp + "one\n" + stamp + "two\n" + stamp + "three\n$").MatchString(got) {
		t.Errorf("it has %q", got)
	}
	small := filepath.Join(place, "small.log")
	proctest.Eventually(t, "the last line is there", func() bool { return strings.HasSuffix(logged(t, small, 0), "line 2000\n") })
	if names := proctest.Value(filepath.Glob(small + "*"))(t); len(names) > 3 {
		t.Errorf("of three files that are kept there are %v", names)
	}
	l.declare("  web: {command: 'printf one; sleep 0.3; echo two >&2; sleep 0.3; echo three; exec sleep 1000'}\n")
	if got := logged(t, out, 0); got == "" {
		t.Error("the file is gone")
	}
	proctest.Eventually(t, "the record of a service that is forgotten is gone", func() bool {
		_, err := os.Stat(filepath.Join(dir, "small.json"))
		return os.IsNotExist(err)
	})
	proctest.Eventually(t, "and what it was told of its file", func() bool {
		_, err := os.Stat(filepath.Join(dir, "small.log"))
		return os.IsNotExist(err)
	})
	l.end(m, "web")
}

// TestAFileThatOthersChangeGoesOn: one that is emptied is continued, and one that is moved is made again,
// by the user of the service and with that user's rights.
func TestAFileThatOthersChangeGoesOn(t *testing.T) {
	m := testkeeper.New(t)
	dir, place, user := t.TempDir(), t.TempDir(), ""
	out, owner := filepath.Join(place, "logs", "web.log"), os.Geteuid()
	if owner == 0 { // root starts it as somebody who has but the directory of the file
		user, owner = ", user: '65534:65534'", 65534
		proctest.Must(t, os.Chmod(filepath.Dir(place), 0o755))
		proctest.Must(t, os.Chown(place, owner, owner))
	}
	l := live(t, m, dir)
	l.declare(fmt.Sprintf(`  web: {command: 'echo one; for f in two three; do until test -e %s/$f; do sleep 0.05; done; echo $f; done; exec sleep 1000', log: {file: %s}%s}
`, place, out, user))
	l.up()
	has := func(want string) {
		t.Helper()
		proctest.Eventually(t, "the file has "+want, func() bool { return logged(t, out, 0) == want })
		for _, path := range []string{out, filepath.Dir(out)} {
			if uid := proctest.Value(os.Stat(path))(t).Sys().(*syscall.Stat_t).Uid; int(uid) != owner {
				t.Errorf("%s is of the user %d", path, uid)
			}
		}
	}
	write := func(text string) { proctest.Must(t, os.WriteFile(filepath.Join(place, text), nil, 0o644)) }
	has("one\n")
	proctest.Must(t, os.Truncate(out, 0))
	write("two")
	has("two\n")
	proctest.Must(t, os.Rename(out, out+".moved"))
	write("three")
	has("three\n")
	l.end(m, "web")
}
