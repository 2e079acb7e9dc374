package work

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/support/proctest"
)

// frozen is a process that opens the project, and then stands still, as one in a sandbox that
// is paused.
type frozen struct {
	io.Reader
	ended chan struct{}
}

func (f *frozen) Read(to []byte) (int, error) {
	if n, err := f.Reader.Read(to); err == nil {
		return n, nil
	}
	<-f.ended
	return 0, io.EOF
}

func (f *frozen) Write(data []byte) (int, error) { return len(data), nil }

func (f *frozen) Close() error {
	close(f.ended)
	return nil
}

// What a model's tool waits for ends with the attempt, also where the project is worked on by
// a process that stands still.
func TestToolsEndWithTheAttempt(t *testing.T) {
	for name, use := range map[string]func(h *hands) error{
		"read":  func(h *hands) error { _, _, err := h.ReadFile("a", 0, 10); return err },
		"list":  func(h *hands) error { _, _, err := h.List(".", 10); return err },
		"write": func(h *hands) error { return h.WriteFile("a", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &frozen{strings.NewReader(`{"id":1,"result":{"root":"/x"}}` + "\n"), make(chan struct{})}
				r, _, err := project.Dial(t.Context(), f, project.Config{})
				proctest.Must(t, err)
				turn, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = use(&hands{ctx: turn, w: &worker{project: r}})
				if _, ok := errors.AsType[*project.BrokenError](err); !ok {
					t.Errorf("it is %v", err)
				}
				proctest.Must(t, r.Close())
			})
		})
	}
}

// A process that does not open the project is lost, and so another worker tries.
func TestAProjectThatIsNotOpenedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{strings.NewReader(""), make(chan struct{})}
		_, _, err := new(worker).dial(t.Context(), project.Config{}, func(context.Context) (project.Conn, error) { return f, nil })
		if _, ok := errors.AsType[*project.BrokenError](err); !ok || !strings.Contains(err.Error(), "stood still for 2m") {
			t.Errorf("it is %v", err)
		}
	})
}
