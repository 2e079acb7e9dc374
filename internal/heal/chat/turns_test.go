package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/support/proctest"
)

func undo(t *testing.T, path, before, after string) *checkpoint.Undo {
	t.Helper()
	side := func(sum string) string {
		return fmt.Sprintf(`{"Kind":"f","Mode":420,"UID":-1,"GID":-1,"Sum":%q,"Data":"eA=="}`, sum)
	}
	u := new(checkpoint.Undo)
	proctest.Must(t, json.Unmarshal(fmt.Appendf(nil, `{"Files":[{"Path":%q,"Before":%s,"After":%s}]}`, `"`+path+`"`, side(before), side(after)), u))
	return u
}

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never written anew: a format that changes has another directory beside it.
func TestATurnIsReadByEachVersion(t *testing.T) {
	proctest.Record(t, "testdata/v1/turn.json", new(Turn))
	if kept := proctest.Value(ReadTurn("testdata/v1/turn.json"))(t); kept.Root != "/app" || kept.Call != 3 || strings.Join(kept.Undo.Paths(), " ") != "part.txt" {
		t.Errorf("it is %+v", kept)
	}
}

// A call is added once, whoever dies before that is known; calls that changed nothing count,
// too, and one reason is enough.
func TestACallIsKeptOnce(t *testing.T) {
	dir := t.TempDir()
	keep := func(call int, u *checkpoint.Undo, why string) *Turn {
		t.Helper()
		proctest.Must(t, KeepCall(dir, "/app", "", 7, call, u, why))
		return proctest.Value(ReadTurn(TurnFile(dir, 7)))(t)
	}
	if _, err := ReadTurn(TurnFile(dir, 7)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no call: %v", err)
	}
	if kept := keep(2, nil, ""); kept.Call != 2 || kept.Undo != nil || kept.Why != "" {
		t.Errorf("of one that changed nothing: %+v", kept)
	}
	keep(3, undo(t, "a", "1", "2"), "")
	if kept := keep(3, undo(t, "b", "1", "2"), "another worker looks again"); kept.Why != "" || strings.Join(kept.Undo.Paths(), " ") != "a" {
		t.Errorf("twice: %+v", kept)
	}
	if kept := keep(5, undo(t, "a", "2", "3"), ""); kept.Call != 5 || kept.Why != "" || strings.Join(kept.Undo.Paths(), " ") != "a" {
		t.Errorf("the next: %+v", kept)
	}
	if kept := keep(6, undo(t, "a", "x", "y"), ""); !strings.Contains(kept.Why, "a was changed by somebody else") {
		t.Errorf("after somebody else: %+v", kept)
	}
	if kept := keep(7, nil, "another reason"); !strings.Contains(kept.Why, "by somebody else") {
		t.Errorf("the last: %+v", kept)
	}
	proctest.Must(t, KeepCall(dir, "/moved", "", 8, 8, nil, ""))
	proctest.Must(t, KeepCall(dir, "/app", "", 8, 9, undo(t, "a", "1", "2"), ""))
	if kept := proctest.Value(ReadTurn(TurnFile(dir, 8)))(t); !strings.Contains(kept.Why, "moved") {
		t.Errorf("of two projects: %+v", kept)
	}
}

// Of a chat that goes on and on the newest turns are kept.
func TestOldTurnsGo(t *testing.T) {
	dir := t.TempDir()
	for said := range int64(keepTurns + 5) {
		proctest.Must(t, KeepCall(dir, "/app", "", said+1, int(said)+1, undo(t, "a", "1", "2"), ""))
	}
	if all := Turns(dir); len(all) != keepTurns || all[0] != 6 || all[keepTurns-1] != keepTurns+5 {
		t.Errorf("there are %v", all)
	}
	for said := range int64(5) { // they have 20 MiB each, and the newest is kept in any case
		proctest.Must(t, os.Truncate(TurnFile(dir, keepTurns+1+said), 20<<20))
	}
	proctest.Must(t, KeepCall(dir, "/app", "", 100, 100, nil, ""))
	if all := Turns(dir); len(all) != 4 || all[3] != 100 {
		t.Errorf("there are %v", all)
	}
}
