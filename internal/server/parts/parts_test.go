package parts

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"no manager":         {Settings: operator.Settings{StateDir: t.TempDir()}},
		"no state directory": {Manager: testkeeper.New(t)},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("Open with %s succeeded", name)
		}
	}
}

func TestTheStatusSaysWhatEachPartIsDoing(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	set := proctest.Value(Open(Config{
		Manager: testkeeper.New(t), Settings: operator.Settings{StateDir: t.TempDir(), Distant: l, Domains: []string{"box.example"}},
	}))(t)
	proctest.Value(set.Driver.Create(t.Context(), driver.Spec{}))(t)
	want := map[string]map[string]string{
		"driver":    {"name": "host", "isolation": "none", "sandboxes": "1"},
		"envd":      {"version": "0.6.13", "streams": "0", "hosts": "49983-ID.box.example"},
		"langsmith": {"connections": "0", "commands attached": "0"},
		"distant":   {"address": l.Addr().String(), "connections": "0", "sessions": "0"},
	}
	got := set.Status(t.Context())
	for name, facts := range want {
		if diff := cmp.Diff(facts, got[name]); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestSettingsMoveToAClosedDirectory, and servers that look for them in the former place find them there: the one that wrote last is
// right.
func TestSettingsMoveToAClosedDirectory(t *testing.T) {
	dir := t.TempDir()
	former := filepath.Join(dir, formerSettings)
	want := func(text string) {
		t.Helper()
		if got, err := settingsIn(dir).Load(); string(got) != text || err != nil {
			t.Errorf("the settings are %q, %v; want %q", got, err, text)
		}
		if text == "" {
			return
		}
		if got, err := atomicfile.Read(former, maxSettings); string(got) != text || err != nil {
			t.Errorf("for an older server they are %q, %v; want %q", got, err, text)
		}
		if info, err := os.Lstat(former); err != nil || info.Mode().IsRegular() {
			t.Errorf("in the former place is %v, %v", info, err)
		}
	}
	want("")
	proctest.Must(t, atomicfile.Synced(former, []byte("of an older server"), 0o600))
	want("of an older server")
	want("of an older server")
	proctest.Must(t, settingsIn(dir).Save([]byte("of this one")))
	want("of this one")
	proctest.Must(t, atomicfile.Synced(former, []byte("of an older one again"), 0o600))
	want("of an older one again")
	fresh := t.TempDir()
	proctest.Must(t, settingsIn(fresh).Save([]byte("the first")))
	if got, err := atomicfile.Read(filepath.Join(fresh, formerSettings), maxSettings); string(got) != "the first" || err != nil {
		t.Errorf("for an older server they are %q, %v", got, err)
	}
}
