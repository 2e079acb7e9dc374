//go:build linux

package stdin

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func memory(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func read(t *testing.T, mem int, accepted int64) *Table {
	t.Helper()
	table, err := ReadTable(mem, accepted, true)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func note(t *testing.T, table *Table, name string, n, accepted int64, more bool) {
	t.Helper()
	proctest.Must(t, table.Note(name, n, accepted, more))
}

func taken(t *testing.T, table *Table, name string, want int64) {
	t.Helper()
	if got, _ := table.Taken(name); got != want {
		t.Errorf("%d bytes of %s were taken; want %d", got, name, want)
	}
}

func TestAWriteIsTakenBackThatTheBoardDidNotAccept(t *testing.T) {
	mem := memory(t)
	table := read(t, mem, 0)
	long := strings.Repeat("n", process.MaxWriterName)
	note(t, table, "a", 10, 10, false)
	note(t, table, long, 5, 15, true)
	note(t, table, long, 7, 22, false) // the server dies before it accepts these
	for range 2 {                      // and its successor, too
		table = read(t, mem, 15)
		taken(t, table, "a", 10)
		taken(t, table, long, 5)
		if name, _ := table.GoingOn(15); name != long {
			t.Errorf("%q is in the middle of a write", name)
		}
	}
	note(t, table, "b", 3, 18, true) // a part of a new writer that is not accepted
	table = read(t, mem, 15)
	taken(t, table, "b", 0)
	if name, _ := table.GoingOn(15); name != long {
		t.Errorf("%q is in the middle of a write", name)
	}
	note(t, table, long, 7, 22, false)
	note(t, table, "a", 1, 23, false)
	table = read(t, mem, 23)
	taken(t, table, long, 12)
	taken(t, table, "a", 11)
	if name, _ := table.GoingOn(23); name != "" {
		t.Errorf("%q is in the middle of a write", name)
	}
}

func TestTheTableLiesBehindAllInput(t *testing.T) {
	f, out := input(t)
	table := read(t, f.Mem, 0)
	note(t, table, "a", 3, 3, false)
	accept(t, f, "one")
	if r := f.Run(me); r != Empty {
		t.Fatal(r)
	}
	if text := got(t, out, 100); text != "one" {
		t.Errorf("the process reads %q", text)
	}
	taken(t, read(t, f.Mem, 3), "a", 3)
}

// A keeper that makes the board again knows the end of the input from its memory
// alone.
func TestTheEndOfTheInputIsKnownWithoutABoard(t *testing.T) {
	mem := memory(t)
	end := int64(0)
	is := func(what string) {
		t.Helper()
		var st unix.Stat_t
		proctest.Must(t, unix.Fstat(mem, &st))
		if got, err := End(mem, st.Size); err != nil || got != end {
			t.Errorf("%s the input ends at %d, %v; want %d", what, got, err, end)
		}
	}
	is("with nothing in it")
	table := read(t, mem, 0)
	write := func(name string) {
		t.Helper()
		proctest.Value(eintr.Pwrite(mem, []byte("seven b"), end))(t)
		if end += 7; name != "" {
			note(t, table, name, 7, end, false)
		} else if err := table.NoteOther(end); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "a", "b", "", "a", ""} {
		write(name)
		is("after a write of " + name)
	}
}

func TestTheWriterThatIsSilentForLongestIsForgotten(t *testing.T) {
	mem := memory(t)
	table := read(t, mem, 0)
	for i := range int64(process.Writers) {
		note(t, table, fmt.Sprint(i), 1, i+1, false)
	}
	note(t, table, "0", 1, 100, false)
	if table.Forgot() {
		t.Error("a writer was forgotten though there was room")
	}
	note(t, table, "new", 1, 101, false)
	for _, table := range []*Table{table, read(t, mem, 101)} {
		taken(t, table, "0", 2)
		taken(t, table, "new", 1)
		if _, known := table.Taken("1"); known || !table.Forgot() || len(table.All()) != process.Writers {
			t.Errorf("1 known: %v; forgot: %v; %d writers", known, table.Forgot(), len(table.All()))
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{1}, int64(3))
	f.Add([]byte(strings.Repeat("\x05hello", 900)), int64(1)<<40)
	f.Fuzz(func(t *testing.T, b []byte, accepted int64) {
		mem := memory(t)
		proctest.Value(eintr.Pwrite(mem, b[:min(len(b), tableSize)], tableAt))(t)
		table := read(t, mem, accepted)
		table.GoingOn(accepted)
		for name, n := range table.All() {
			if got, known := read(t, mem, accepted).Taken(name); !known || got != n && len(table.All()) == process.Writers {
				t.Errorf("%q has %d bytes, and when it is read again %d", name, n, got)
			}
		}
	})
}
