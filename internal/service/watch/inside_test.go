package watch

import (
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// flooded is a directory in which more has changed than a watch keeps, of which only what is
// ignored could be told.
type flooded struct{ Files }

func (flooded) Resolve(path string) (string, error) { return path, nil }

func (f flooded) Watch(string, files.WatchOptions) (files.Watcher, error) { return f, nil }

func (flooded) Root() string           { return "/x" }
func (flooded) Ready() <-chan struct{} { return nil }
func (flooded) Close() error           { return nil }
func (flooded) Take() ([]files.Event, error) {
	return []files.Event{{Name: "log", Op: files.OpWrite}}, files.ErrOverflow
}

// What got lost before a root was let go is a change, too.
func TestTheRestIsAChangeIfSomeOfItIsLost(t *testing.T) {
	w := proctest.Value(OpenIn(flooded{}, "/x", &config.Watch{Paths: config.Strings{"**"}, Ignore: config.Strings{"log"}}))(t)
	if name := w.Rest(); name == "" {
		t.Error("nothing is said to have changed")
	}
}
