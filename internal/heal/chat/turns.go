package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// TurnsDir is in the directory of a chat. N.json has what is needed to take back the turn
// that began with message N, including the content of files.
const TurnsDir = "turns"

// Bounds of what is kept of turns.
const (
	keepTurns = 20                     // with calls that may have changed something
	maxTurn   = 2 * checkpoint.MaxUndo // bytes; more than an Undo has as JSON
	maxTurns  = 64 << 20               // bytes of all
)

// Turn has the changes of one turn in the project.
type Turn struct {
	Root string `json:"root"` // of the project
	// Sandbox is the ID of the project's sandbox; "": the machine. Nil: unknown, written by
	// an earlier version.
	Sandbox *string `json:"sandbox,omitempty"`
	// Call is the number, among all calls that have begun, of the newest call in it.
	Call int              `json:"call"`
	Undo *checkpoint.Undo `json:"undo,omitempty"` // nil: nothing is kept
	// Why it cannot be taken back; "": it can be, if there is an Undo.
	Why string `json:"why,omitempty"`
	// Lost: the changes of one of its calls are in no Undo, so the content of a file before
	// a later call may not be the content before the turn.
	Lost bool `json:"lost,omitempty"`
}

// TurnFile returns the path of the file of a turn.
func TurnFile(dir string, said int64) string {
	return filepath.Join(dir, TurnsDir, strconv.FormatInt(said, 10)+".json")
}

// ReadTurn reads the file of a turn. The error is [fs.ErrNotExist] if there is none.
func ReadTurn(path string) (*Turn, error) {
	data, err := atomicfile.Read(path, maxTurn)
	if err != nil {
		return nil, err
	}
	t := new(Turn)
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("read what is kept of a turn: %w", err)
	}
	return t, nil
}

// KeepCall adds the changes of a call to the file of its turn, and removes the files of
// turns that are too old. sandbox is the ID of the project's sandbox, "" for the machine.
// why says why the call cannot be taken back. A call that is already in the file is not
// added again.
func KeepCall(dir, root, sandbox string, said int64, call int, u *checkpoint.Undo, why string) error {
	path := TurnFile(dir, said)
	t, err := ReadTurn(path)
	if errors.Is(err, fs.ErrNotExist) {
		t, err = &Turn{Root: root, Sandbox: &sandbox}, nil
	}
	if err != nil || t.Call >= call {
		return err
	}
	switch {
	case why != "":
	case t.Sandbox != nil && *t.Sandbox != sandbox:
		why, u = "the service was moved to another sandbox meanwhile", nil
	case t.Root != root:
		why = "the project was moved meanwhile"
	}
	joined, apart := t.Undo.Join(u)
	t.Call, t.Undo, t.Lost = call, joined, t.Lost || u == nil && why != "" || joined == nil && apart != ""
	for _, one := range []string{why, apart} {
		if t.Why == "" {
			t.Why = one
		}
	}
	data, err := json.Marshal(t)
	if err == nil && len(data) > maxTurn {
		t.Undo, t.Why, t.Lost = nil, "what it has changed is too much to be kept", true
		data, err = json.Marshal(t)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = atomicfile.Synced(path, data, 0o600)
	}
	if err == nil {
		pruneTurns(dir)
	}
	return err
}

// Turns returns the turns that have a file, by the numbers of their messages, the oldest
// first.
func Turns(dir string) (all []int64) {
	entries, _ := os.ReadDir(filepath.Join(dir, TurnsDir)) // none, if there is no directory
	for _, e := range entries {
		if text, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all
}

// pruneTurns removes what is kept of turns that are too old.
func pruneTurns(dir string) {
	all, size := Turns(dir), int64(0)
	for n, said := range slices.Backward(all) {
		info, err := os.Lstat(TurnFile(dir, said))
		if err != nil {
			continue
		}
		size += info.Size()
		if kept := len(all) - n; kept > keepTurns || kept > 1 && size > maxTurns {
			_ = os.Remove(TurnFile(dir, said)) // else with the next one
		}
	}
}
