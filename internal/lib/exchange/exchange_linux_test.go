package exchange

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// is is whether a file has a content.
func is(text string) func(*os.File) bool {
	return func(f *os.File) bool {
		data, err := io.ReadAll(f)
		return err == nil && string(data) == text
	}
}

// Whoever saves a file while another one is put in its place has it saved, however they do that.
func TestNoSaveIsLostByAnExchange(t *testing.T) {
	dir := t.TempDir()
	root := proctest.Value(os.OpenRoot(dir))(t)
	defer root.Close()
	at := func(name string) string { return filepath.Join(dir, "in", name) }
	proctest.Must(t, os.Mkdir(filepath.Dir(at("x")), 0o755))
	for how, save := range map[string]func() error{
		"in place": func() error { return os.WriteFile(at("file"), []byte("saved"), 0o644) },
		"by a rename": func() error {
			return errors.Join(os.WriteFile(at("save"), []byte("saved"), 0o644), os.Rename(at("save"), at("file")))
		},
	} {
		refused, rounds := 0, 1000
		for range rounds {
			proctest.Must(t, os.WriteFile(at("file"), []byte("base"), 0o644))
			proctest.Must(t, os.WriteFile(at("fresh"), []byte("fresh"), 0o644))
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := save(); err != nil {
					t.Error(err)
				}
			})
			err := File(root, "in/fresh", "in/file", is("base"))
			wg.Wait()
			if errors.Is(err, ErrChanged) {
				refused++
			} else {
				proctest.Must(t, err)
			}
			if got := string(proctest.Value(os.ReadFile(at("file")))(t)); got != "saved" {
				t.Fatalf("%s: there is %q, and the exchange said %v", how, got, err)
			}
		}
		t.Logf("%s: %d of %d were refused", how, refused, rounds)
	}
}

func TestAnExchangeOfWhatIsNotExpected(t *testing.T) {
	dir := t.TempDir()
	root := proctest.Value(os.OpenRoot(dir))(t)
	defer root.Close()
	put := func(name, text string) { proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	want := func(what string, err, wanted error, files map[string]string) {
		t.Helper()
		if !errors.Is(err, wanted) {
			t.Errorf("%s: %v; want %v", what, err, wanted)
		}
		left := proctest.Value(os.ReadDir(dir))(t)
		for _, e := range left {
			if data, _ := os.ReadFile(filepath.Join(dir, e.Name())); string(data) != files[e.Name()] || len(left) != len(files) {
				t.Errorf("%s: %s has %q of %v", what, e.Name(), data, left)
			}
		}
	}
	put("fresh", "new")
	want("none, which was to be", File(root, "fresh", "file", is("old")), ErrChanged, map[string]string{"fresh": "new"})
	want("none, as expected", File(root, "fresh", "file", nil), nil, map[string]string{"file": "new"})
	put("fresh", "newer")
	want("one, where none was to be", File(root, "fresh", "file", nil), ErrChanged, map[string]string{"file": "new", "fresh": "newer"})
	want("another", File(root, "fresh", "file", is("old")), ErrChanged, map[string]string{"file": "new", "fresh": "newer"})
	writer := proctest.Value(os.OpenFile(filepath.Join(dir, "file"), os.O_WRONLY, 0))(t)
	want("one that is being written", File(root, "fresh", "file", is("new")), ErrChanged, map[string]string{"file": "new", "fresh": "newer"})
	proctest.Must(t, writer.Close())
	want("as expected", File(root, "fresh", "file", is("new")), nil, map[string]string{"file": "newer"})
}
