package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never rewritten: a format that changes has another directory beside it.

func TestTheRecordOfAServiceIsReadByEachVersion(t *testing.T) {
	r := new(record)
	proctest.Record(t, "testdata/v1/service.json", r)
	if r.Rules == nil || r.Token == "" || r.State.Phase != supervisor.Starting || !r.State.Up || r.State.Exit == nil {
		t.Errorf("it is %+v", r)
	}
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "web.json"), proctest.Value(os.ReadFile("testdata/v1/service.json"))(t), 0o600))
	all := proctest.Value(store{dir}.load())(t)
	if len(all) != 1 || all["web"] == nil || all["web"].Rules.Name != "web" {
		t.Fatalf("of one service there are %d", len(all))
	}
	if s := all["web"].State; s.Foreign {
		t.Errorf("it is not known: %s", s.Why)
	}
}

// These are numbers in records. Another number is another meaning.
func TestConditionsInRecordsKeepTheirMeaning(t *testing.T) {
	for what, n := range map[string][2]int{
		"ready": {int(config.Ready), 0}, "started": {int(config.Started), 1}, "completed": {int(config.Completed), 2}, "log line": {int(config.LogLine), 3},
	} {
		if n[0] != n[1] {
			t.Errorf("%s is %d, and was %d", what, n[0], n[1])
		}
	}
}

// What its files were is read by each version, too.
func TestTheFilesOfAServiceAreReadByEachVersion(t *testing.T) {
	r := new(filesRecord)
	proctest.Record(t, "testdata/v1/service.files", r)
	if r.Of == "" || r.Were == nil || r.Were.Files == 0 || r.Were.Hash == "" {
		t.Errorf("it is %+v", r)
	}
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "web.files"), proctest.Value(os.ReadFile("testdata/v1/service.files"))(t), 0o600))
	if were := (store{dir}).files("web", r.Of); were == nil || *were != *r.Were {
		t.Errorf("it is read as %+v", were)
	}
	if were := (store{dir}).files("web", "another"); were != nil {
		t.Errorf("of what another watched it is read as %+v", were)
	}
	// It goes with its service.
	if all := proctest.Value(store{dir}.load())(t); len(all) != 0 {
		t.Errorf("there are services: %v", all)
	}
	if _, err := os.Stat(filepath.Join(dir, "web.files")); !os.IsNotExist(err) {
		t.Errorf("it stays: %v", err)
	}
}
